"""Steps that are the same but for names share an operator; what several kernels read is written once."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import crucible
from crucible.capture import trace
from crucible.emission.alike import alike
from crucible.plan.planner import fuse
from crucible.plan.steps import Fused, Plan
from crucible.plan.taken import LINEAR, is_ours


class Cells(nn.Module):
    """A recurrent net whose state is read by two kernels a step, and whose steps are alike."""

    def __init__(self, steps: int = 3, other: bool = False) -> None:
        super().__init__()
        self.steps, self.other = steps, other
        self.hh = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        for step in range(self.steps):
            h = self.hh(torch.tanh(c))
            x = x + c * h
            c = c * (0.5 if self.other and step == 2 else 0.25) + torch.sigmoid(h) * x
        return c


def planned(module: nn.Module, *inputs: torch.Tensor) -> Plan:
    return fuse(trace(module, inputs))


def operators(plan: Plan) -> int:
    return len({step.name for step in alike(plan).values()})


def test_steps_of_a_loop_share_operators() -> None:
    x, c = torch.randn(3, 4), torch.randn(3, 4)
    few, many = (planned(Cells(steps), x, c) for steps in (4, 12))
    assert len(many.steps) > len(few.steps) + 8 and operators(many) == operators(few)
    assert operators(planned(Cells(4, other=True), x, c)) > operators(few)


def test_paths_through_many_steps_are_walked_once() -> None:
    """There are more than two to the power of their number."""
    graph = trace(Cells(30), [torch.randn(3, 4), torch.randn(3, 4)])
    layers = [each for each in graph.operations if each.kind == LINEAR]
    assert len(layers) == 30 and all(is_ours(each, graph) for each in layers)


class Three(nn.Module):
    """Of one form, but for strides and the kind of a reduction."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(0), x.sum(1), x.amax(1)


def test_what_differs_in_more_than_names_does_not() -> None:
    plan = planned(Three(), torch.randn(6, 6))
    assert operators(plan) == 3 == sum(isinstance(step, Fused) for step in plan.steps)


def test_a_residual_stream_is_written_down() -> None:
    class Stream(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(6):
                x = x + F.layer_norm(x, x.shape[-1:]).cumsum(0)
            return x

    plan = planned(Stream(), torch.randn(5, 8))
    assert max(len(step.reads) for step in plan.steps if isinstance(step, Fused)) == 2


@pytest.mark.usefixtures("no_faults")
def test_shared_operators_compute_what_the_module_does() -> None:
    module = Cells()
    x, c = torch.randn(3, 4), torch.randn(3, 4)
    fused = crucible.fuse(copy.deepcopy(module), x, c, emulate=True)
    found = []
    for each in (fused, module):
        given = [x.clone().requires_grad_(), c.clone().requires_grad_()]
        made = each(*given)
        found.append([made, *torch.autograd.grad(made.square().sum(), [*given, *each.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
