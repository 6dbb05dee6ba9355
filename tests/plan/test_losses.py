"""Losses of pairs by their formulas: the same values and gradients, in float64 and by kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from interpret import check
from torch import nn

import crucible
from crucible.capture import trace
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Plan
from crucible.schedule.machine import H200, MACHINES

pytestmark = [
    pytest.mark.filterwarnings("ignore:reduction. 'mean'"),
    pytest.mark.filterwarnings("ignore:Using a target size"),
]
Loss = Callable[..., torch.Tensor]
SHAPE = (5, 12)


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few elements are rewritten like those that it pays for."""
    monkeypatch.setitem(MACHINES, "h200", replace(H200, choices=replace(H200.choices, launch_bytes=0)))


class Of(nn.Module):
    """The loss of what a chain makes."""

    def __init__(self, loss: Loss, **options: Any) -> None:
        super().__init__()
        self.scale, self.loss, self.options = nn.Parameter(torch.randn(12)), loss, options

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        return self.loss(x * self.scale, *others, **self.options)


def logs(x: torch.Tensor, target: torch.Tensor, **options: Any) -> torch.Tensor:
    return F.kl_div(F.log_softmax(x, 1), target, **options)


LOSSES: dict[str, tuple[Loss, int, dict[str, Any]]] = {
    "mse_loss": (F.mse_loss, 1, {}),
    "l1_loss": (F.l1_loss, 1, {}),
    "huber_loss": (F.huber_loss, 1, {"delta": 0.3}),
    "smooth_l1_loss": (F.smooth_l1_loss, 1, {"beta": 0.7}),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, 1, {}),
    "kl_div": (logs, 1, {}),
    "kl_div of logarithms": (logs, 1, {"log_target": True}),
    "triplet_margin_loss": (F.triplet_margin_loss, 2, {"margin": 0.8}),
}


def calls(plan: Plan) -> list[str]:
    return [step.operation.kind for step in plan.steps if isinstance(step, Call)]


def given(name: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(SHAPE, dtype=dtype), *(torch.rand(SHAPE, dtype=dtype) for _ in range(LOSSES[name][1]))]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_it_is_the_same(name: str, reduction: str) -> None:
    loss, _, options = LOSSES[name]
    plan = check(Of(loss, reduction=reduction, **options), *given(name))
    assert calls(plan) == []
    assert f"{name.split()[0]} by its formula" in plan.rewrites


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_compute_them(dtype: torch.dtype) -> None:
    class All(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.losses = nn.ModuleList([Of(loss, **options) for loss, _, options in LOSSES.values()])

        def forward(self, x: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
            counts = (count for _, count, _ in LOSSES.values())
            return tuple(each(x, *others[:count]) for each, count in zip(self.losses, counts, strict=True))

    inputs = [each.requires_grad_() for each in given("triplet_margin_loss", dtype)]
    module = All().to(dtype)
    fused = crucible.fuse(module, *inputs, emulate=True)
    near = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 4e-3}
    for found, expected in zip(fused(*inputs), module(*inputs), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected, **near)
        both = (torch.autograd.grad(each, inputs, retain_graph=True, allow_unused=True) for each in (found, expected))
        for ours, theirs in zip(*both, strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                torch.testing.assert_close(ours, theirs, **near)


def test_what_has_no_probability_diverges_by_nothing() -> None:
    x, target = given("kl_div")
    target[:, ::2] = 0
    check(Of(logs, reduction="none"), x, target, gradients=False)


def test_where_both_are_one_there_is_no_slope() -> None:
    """PyTorch's is 0 there, too."""
    for loss in (F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        module = Of(loss, reduction="sum")
        x = torch.randn(SHAPE)
        check(module, x, (x * module.scale).detach())


def test_a_loss_goes_with_the_layer_in_front() -> None:
    class Behind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 12)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return F.mse_loss(self.layer(x), target, reduction="none")

    plan = fuse(trace(Behind(), [torch.randn(SHAPE), torch.randn(SHAPE)]))
    assert calls(plan) == [] and len(plan.steps) == 1


class Weighed(nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(x, target, weight)


class Swapped(nn.Module):
    def forward(self, x: torch.Tensor, near: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
        return F.triplet_margin_loss(x, near, far, swap=True)


class InManhattan(nn.Module):
    def forward(self, x: torch.Tensor, near: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
        return F.triplet_margin_loss(x, near, far, p=1.0)


@pytest.mark.parametrize("module", [Weighed, Swapped, InManhattan])
def test_what_is_something_else_stays(module: type[nn.Module]) -> None:
    graph = trace(module(), [torch.rand(SHAPE) for _ in range(3)])
    (kind,) = calls(fuse(graph))
    assert kind in ("binary_cross_entropy_with_logits", "triplet_margin_loss")


def test_what_is_broadcast_is_the_same() -> None:
    assert calls(check(Of(F.mse_loss), torch.randn(SHAPE), torch.rand(12))) == ["broadcast_tensors"]


def test_what_is_of_two_dtypes_stays() -> None:
    graph = trace(Of(F.mse_loss), [torch.randn(SHAPE), torch.rand(SHAPE, dtype=torch.float16)])
    assert "mse_loss" in calls(fuse(graph))


def test_small_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MACHINES, "h200", H200)
    for rows, stays in ((1000, ["mse_loss"]), (1200, [])):
        graph = trace(Of(F.mse_loss), [torch.empty(rows * 200, 12), torch.empty(rows * 200, 12)])
        assert calls(fuse(graph)) == stays
