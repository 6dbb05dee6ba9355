"""Buffers that forward moves, and what learns beside them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import crucible
from crucible.capture import trace
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Fused


class Taught(nn.Module):
    """By a network that does not learn; a moving mean is what its own features are to be near to."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.student(x))
        with torch.no_grad():
            target = self.norm(self.teacher(x)).relu()
            self.mean.mul_(0.9).add_(y.mean((0, 2, 3)), alpha=0.1)
        near = (y.mean((0, 2, 3)) - self.mean).abs().sum() + torch.relu(
            self.student(x) - self.mean[:, None, None]
        ).mean()
        return (y - target).square().mean() + near


@pytest.mark.slow
def test_what_learns_beside_them_learns_as_in_eager() -> None:
    torch.manual_seed(0)
    module = Taught()
    eager = copy.deepcopy(module)
    fused = crucible.fuse(module, torch.randn(2, 3, 8, 8), emulate=True)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        fused(x).backward()
        eager(x).backward()
        for (name, one), two in zip(module.named_parameters(), eager.parameters(), strict=True):
            assert (one.grad is None) == (two.grad is None) == (name.startswith(("teacher", "norm"))), name
            if one.grad is not None:
                assert (one.grad - two.grad).norm() < 5e-3 * two.grad.norm()
        for one, two in zip(module.buffers(), eager.buffers(), strict=True):
            torch.testing.assert_close(one, two, rtol=2e-3, atol=2e-3)


def test_only_what_backward_reads_again_is_copied() -> None:
    plan = fuse(trace(Taught(), [torch.randn(2, 3, 8, 8)]))
    calls = [step.operation for step in plan.steps if isinstance(step, Call)]
    copied = [call.inputs for call in calls if call.kind == "clone"]
    assert copied == [("mean",)]
    readers = [step for step in plan.steps if isinstance(step, Fused) and "mean" in step.reads]
    assert all(not step.wanted for step in readers)
