"""Cross entropy by its formula: the same loss and gradients, for targets that are ignored and those that are wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from interpret import check, fused_steps
from torch import nn

import crucible
from crucible.capture import trace
from crucible.emission.at_once import is_known
from crucible.plan.planner import fuse
from crucible.plan.steps import Call
from crucible.schedule.machine import H200, MACHINES

ROWS, CLASSES = 7, 10


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are rewritten like those that it pays for."""
    monkeypatch.setitem(MACHINES, "h200", replace(H200, choices=replace(H200.choices, launch_bytes=0)))


class Loss(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layer, self.options = nn.Linear(4, CLASSES), options
        ignored = options.get("ignore_index", -100)
        self.register_buffer("target", torch.tensor([3, 0, ignored, CLASSES - 1, 2, 2, ignored]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.layer(x), self.target, **self.options)


def calls(plan: Any) -> list[str]:
    return [step.operation.kind for step in plan.steps if isinstance(step, Call)]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("ignored", [-100, -1, 7])
def test_it_is_the_same(reduction: str, smoothing: float, ignored: int) -> None:
    torch.manual_seed(0)
    module = Loss(reduction=reduction, label_smoothing=smoothing, ignore_index=ignored)
    plan = check(module, torch.randn(ROWS, 4))
    assert calls(plan) == ["linear", "to", "arange"]
    assert len(fused_steps(plan)) == (2 if reduction != "none" else 1)
    assert all(is_known(step.operation) for step in plan.steps if isinstance(step, Call))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_compute_it_and_a_wrong_target_makes_no_number(dtype: torch.dtype) -> None:
    class Given(nn.Module):
        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(x, target)

    torch.manual_seed(0)
    x = torch.randn(ROWS, CLASSES, dtype=dtype, requires_grad=True)
    target = torch.randint(0, CLASSES, (ROWS,))
    target[1] = -100
    fused = crucible.fuse(Given(), x, target, emulate=True)
    found, expected = fused(x, target), F.cross_entropy(x, target)
    assert found.dtype == dtype
    exact = dtype == torch.float32
    torch.testing.assert_close(found, expected, **({} if exact else {"rtol": 1e-2, "atol": 1e-2}))
    ours, theirs = (torch.autograd.grad(each, x)[0] for each in (found, expected))
    torch.testing.assert_close(ours, theirs, **({} if exact else {"rtol": 2e-2, "atol": 2e-3}))
    for wrong in (CLASSES, -1):
        target[2] = wrong
        assert math.isnan(float(fused(x, target).detach()))


class Weighed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.rand(CLASSES))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target, self.weights)


class Probable(nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, F.one_hot(target, CLASSES).float())


class Pictures(nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x.view(1, CLASSES, -1), target.view(1, -1))


class Plain(nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target)


@pytest.mark.parametrize("module", [Weighed, Probable, Pictures])
def test_what_is_something_else_stays(module: type[nn.Module]) -> None:
    graph = trace(module(), [torch.randn(ROWS, CLASSES), torch.randint(0, CLASSES, (ROWS,))])
    assert "cross_entropy_loss" in calls(fuse(graph))


def test_small_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more launches are worth what 11 MB of scores save."""
    monkeypatch.setitem(MACHINES, "h200", H200)
    for rows, stays in ((1000, True), (1200, False)):
        graph = trace(Plain(), [torch.empty(rows, 2500), torch.zeros(rows, dtype=torch.int64)])
        assert ("cross_entropy_loss" in calls(fuse(graph))) == stays
