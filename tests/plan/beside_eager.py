"""Fused modules beside the modules, on the emulator: what they return, and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


def assert_same(
    fused: nn.Module,
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    used: Callable[[Any], Any] = lambda out: out,
    *,
    near: float = 1e-4,
) -> None:
    """Outputs, their strides, gradients of what is `used` of them, and buffers afterwards."""
    for own, eager in zip(results(fused, inputs, used), results(module, inputs, used), strict=True):
        assert own.stride() == eager.stride()
        torch.testing.assert_close(own, eager, rtol=near, atol=near)


def results(
    module: nn.Module, inputs: Sequence[torch.Tensor], used: Callable[[Any], Any] = lambda out: out
) -> list[torch.Tensor]:
    """What a module returns, gradients of inputs and parameters (0 where one takes no part), and its buffers."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    out = module(*leaves)
    taken = _tensors(used(out))
    cotangents = [torch.linspace(-1, 2, each.numel(), dtype=each.dtype).view(each.shape) for each in taken]
    wanted = [*leaves, *module.parameters()]
    found = torch.autograd.grad(taken, wanted, cotangents, allow_unused=True)
    filled = [torch.zeros_like(of) if each is None else each for each, of in zip(found, wanted, strict=True)]
    return [*_tensors(out), *filled, *(each.clone() for each in module.buffers())]


def _tensors(out: Any) -> list[torch.Tensor]:
    return list(out) if isinstance(out, tuple | list) else [out]
