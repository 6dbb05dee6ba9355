"""Tensors that kernels take and do not read, on the emulator: what autograd gives them are zeros like them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import crucible
from crucible.capture import trace
from crucible.emission.file import emit
from crucible.plan.planner import fuse
from crucible.plan.steps import Fused

pytestmark = pytest.mark.slow


def zero(value: torch.Tensor) -> torch.Tensor:
    """0 for all finite inputs."""
    return value.clamp(max=0.0).clamp(min=0.0)


class Several(nn.Module):
    """Numbers, of tensors of several types and layouts, alone and beside others."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc, self.other = nn.GroupNorm(3, 6), nn.Linear(8, 6), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor, half: torch.Tensor, wide: torch.Tensor) -> tuple[torch.Tensor, ...]:
        number = torch.clamp(torch.min(self.norm(self.fc(x)), torch.tensor(0.0)), 0, 1)
        mixed = zero(self.other(half.float())).half() + half[:, :6].tanh()
        return number, mixed, zero(self.other(wide.float()))


class Two(nn.Module):
    """Two results of one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.randn(12, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        moved = x * 2 + self.c[:0].sum().float()
        return F.layer_norm(moved, (8,)), moved


def gradients(made: Any, leaves: list[torch.Tensor], **options: Any) -> list[torch.Tensor | None]:
    torch.manual_seed(1)
    cotangents = [torch.randn_like(each) for each in made]
    return [*torch.autograd.grad(made, leaves, cotangents, allow_unused=True, **options)]


def check_alike(ours: list[torch.Tensor | None], theirs: list[torch.Tensor | None]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one is not None and other is not None
        assert one.shape == other.shape and one.dtype == other.dtype
        assert bool(one.any()) == bool(other.any())
        torch.testing.assert_close(one, other, rtol=1e-2, atol=2e-3)  # float16


def test_gradients_are_zeros_of_the_shapes_and_types_of_what_they_are_of(no_faults: object) -> None:
    torch.manual_seed(0)
    module = Several()
    given = [torch.randn(8, 5).t(), torch.randn(5, 8).half(), torch.randn(5, 16).double()[:, ::2]]
    for each in given:
        each.requires_grad_()
    eager, fused = copy.deepcopy(module), crucible.fuse(module, *given, emulate=True)
    expected = eager(*given)
    theirs = gradients(expected, [*given, *eager.parameters()])
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
    for forward in (fused, compiled):
        found = forward(*given)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
        check_alike(gradients(found, [*given, *fused.parameters()]), theirs)
    with torch.no_grad():
        assert not any(each.requires_grad for each in fused(*given))


def test_zeros_where_the_first_of_two_results_has_no_gradient(no_faults: object) -> None:
    """They are made like the gradient that comes."""
    torch.manual_seed(0)
    x, module = torch.randn(5, 8, requires_grad=True), Two()
    eager, fused = copy.deepcopy(module), crucible.fuse(module, x, emulate=True)
    for forward in (fused, torch.compile(fused, fullgraph=True, backend="aot_eager")):
        for place in (0, 1):
            ours = gradients([forward(x)[place]], [x, fused.c])
            check_alike(ours, gradients([eager(x)[place]], [x, eager.c]))


def test_a_gradient_of_gradients_goes_on_beside_them(no_faults: object) -> None:
    torch.manual_seed(0)
    x, module = torch.randn(5, 8, requires_grad=True), nn.Sequential(nn.Linear(8, 6), nn.ReLU6(), nn.Threshold(9, 0.0))
    fused = crucible.fuse(module, x, emulate=True)
    found = gradients([fused(x)], [x, *fused.parameters()], create_graph=True)
    assert all(each is not None and not each.any() for each in found)
    penalty = sum(each.square().sum() for each in found if each is not None) + x.pow(3).sum()
    assert isinstance(penalty, torch.Tensor)
    torch.testing.assert_close(torch.autograd.grad(penalty, x)[0], 3 * x.square())


def test_forward_takes_one_kernel_and_backward_none() -> None:
    class Number(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv3d(3, 6, 3), nn.GroupNorm(3, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return zero(self.norm(self.conv(x)))

    plan = fuse(trace(Number(), [torch.randn(2, 3, 6, 6, 5)]))
    assert [step.name for step in plan.steps if isinstance(step, Fused)] == ["add"] and len(plan.steps) == 1
    text = emit(plan, "number")
    assert text.count("__global__") == 1 and "add_backward" not in text and "torch.ops.aten" not in text
    assert text.count("torch::zeros(") == 5
