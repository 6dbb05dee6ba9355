"""Poison: memory that nobody wrote says so, because it holds a NaN that arithmetic does not make."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crucible.judge.boundary.bits import INTEGER_VIEWS, POISON
from crucible.tracing import heard

_FRESH = (
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "empty_permuted",
    "resize_",
)


class Poison(TorchDispatchMode):
    """Fills memory that PyTorch hands out fresh with a NaN nobody computes, also where C++ asks for it, and
    notes which of PyTorch's operations run."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in noise.RoundedOperands

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = heard(func, args, kwargs or {})
        name = func.overloadpacket.__name__
        self.operations.add(name)
        if name in _FRESH and isinstance(out, torch.Tensor) and out.numel():
            payload = POISON.get(out.dtype)
            if payload is not None:
                out.view(INTEGER_VIEWS[out.element_size()]).fill_(payload)
        return out


def poison_free_memory(device: torch.device, outputs: list[dict[str, Any]]) -> None:
    """Leaves NaN in the blocks that CUDA's caching allocator will hand out next (extensions that ask it directly)."""
    if device.type != "cuda":
        return
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    sizes = [torch.Size(o["shape"]).numel() * getattr(torch, o["dtype"]).itemsize for o in outputs]
    blocks = [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes if 0 < size < free // 4]
    for block in blocks:
        block.fill_(0xFF)  # NaN in every floating dtype


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Inside, what `torch.compile` made runs as plain PyTorch; after it, as if nothing had been compiled yet.

    Under a dispatch mode Dynamo gives a function up for good (H200: a compiled candidate was timed at eager's
    speed), so a poisoned run must not be its first.
    """
    loaded = "torch._dynamo" in sys.modules
    with torch.compiler.set_stance("force_eager") if loaded else contextlib.nullcontext():
        yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
