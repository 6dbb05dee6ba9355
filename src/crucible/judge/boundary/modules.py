"""Modules as both sides run them: constructed, called, pulled back, at a precision and under a seed."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch
from torch.nn.parameter import is_lazy


def construct(cls: Any, init_inputs: Any) -> Any:
    """`cls(*init_inputs)`, or `cls(**init_inputs)` for a dict."""
    return cls(**init_inputs) if isinstance(init_inputs, dict) else cls(*init_inputs)


def call(model: torch.nn.Module, inputs: Any) -> Any:
    """`model(*inputs)`, or `model(**inputs)` for a dict."""
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def materialise(model: torch.nn.Module, inputs: Any, seed: int) -> None:
    """Gives lazy modules their weights, by a first call under a seed that leaves running statistics alone."""
    if not any(is_lazy(weight) for weight in (*model.parameters(), *model.buffers())):
        return
    training = {module: module.training for module in model.modules()}
    model.eval()
    seed_all(seed)
    with torch.no_grad():
        call(model, inputs)
    for module, mode in training.items():
        module.training = mode


def gradients_of(
    outputs: list[torch.Tensor], wanted: dict[str, torch.Tensor], cotangents: list[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Gradients by name for the outputs that autograd reaches; `cotangents` go with the floating outputs."""
    floating = [t for t in outputs if t.is_floating_point()]
    pairs = [(t, c) for t, c in zip(floating, cotangents, strict=True) if t.requires_grad]
    if not pairs or not wanted:
        return {}
    found = torch.autograd.grad(
        [t for t, _ in pairs],
        list(wanted.values()),
        [c.to(device=t.device, dtype=t.dtype) for t, c in pairs],
        allow_unused=True,
    )
    return {name: g.detach() for name, g in zip(wanted, found, strict=True) if g is not None}


def pulled_back(
    outputs: list[torch.Tensor], wanted: dict[str, torch.Tensor], cotangents: list[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """What `gradients_of` gives, with two small kernels more, so not for what is timed.

    Where autograd itself is handed cotangents, it imports SymPy to compare their shapes: 0.3 s.
    """
    end = joined(outputs, cotangents) if wanted else None
    if end is None:
        return {}
    found = torch.autograd.grad(end, list(wanted.values()), allow_unused=True)
    return {name: g.detach() for name, g in zip(wanted, found, strict=True) if g is not None}


def joined(outputs: list[torch.Tensor], cotangents: list[torch.Tensor]) -> torch.Tensor | None:
    """A number from which backward hands each floating output its cotangent, strides and all; None where autograd
    reaches no output."""
    floating = [t for t in outputs if t.is_floating_point()]
    pairs = [(t, c.to(t.device, t.dtype)) for t, c in zip(floating, cotangents, strict=True) if t.requires_grad]
    if not pairs:
        return None
    with torch.enable_grad():
        end: torch.Tensor = _Cotangents.apply([c for _, c in pairs], *(t for t, _ in pairs))
    return end


class _Cotangents(torch.autograd.Function):
    """A number whose gradient, for each of the tensors it was made from, is the cotangent given with it."""

    @staticmethod
    def forward(ctx: Any, cotangents: list[torch.Tensor], *outputs: torch.Tensor) -> torch.Tensor:
        ctx.cotangents = cotangents
        return outputs[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, *ctx.cotangents


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two non-empty tensors live in one storage."""
    if not a.numel() or not b.numel() or a.device != b.device:
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def seed_all(seed: int) -> None:
    """Seeds every generator that a task file may draw from. Not by `torch.manual_seed`: for accelerators that are not
    there it writes down the stack, a third of the oracle's processor time in a run of tiny candidates."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if torch.backends.cuda.is_built():
        torch.cuda.manual_seed_all(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def generators_moved(seed: int) -> bool:
    """Whether anything was drawn of PyTorch's generators since they were seeded so."""
    every = [torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ())]
    fresh = (torch.Generator(each.device).manual_seed(seed) for each in every)
    return any(not torch.equal(one.get_state(), new.get_state()) for one, new in zip(every, fresh, strict=True))
