"""What is detached takes no gradient, whoever computes with it: kernels of convolutions had given it one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import crucible
from crucible.capture import trace
from crucible.plan.planner import fuse
from crucible.plan.steps import Fused

Forward = Callable[[Any, torch.Tensor], torch.Tensor]


class Net(nn.Module):
    def __init__(self, *forwards: Forward) -> None:
        super().__init__()
        self.forwards = forwards
        self.conv, self.turned = nn.Conv2d(3, 8, 3, padding=1), nn.ConvTranspose2d(3, 8, 3)
        self.each, self.linear = nn.Conv2d(3, 3, 3, groups=3), nn.Linear(8, 4)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [forward(self, x) for forward in self.forwards]


FORWARDS: dict[str, Forward] = {
    "the input": lambda m, x: torch.tanh(m.conv(x.detach())) * x.mean(),
    "a chain in front": lambda m, x: torch.tanh(m.conv(torch.tanh(x).detach())) + x.mean(),
    "the weight": lambda m, x: torch.tanh(F.conv2d(x, m.conv.weight.detach(), m.conv.bias)),
    "the bias": lambda m, x: torch.tanh(F.conv2d(x, m.conv.weight, m.conv.bias.detach())),
    "under a softmax": lambda m, x: F.conv2d(x, m.conv.weight.detach(), m.conv.bias.detach()).softmax(1) * x.mean(),
    "under a pool": lambda m, x: F.max_pool2d(F.conv2d(x.detach(), m.conv.weight, m.conv.bias).relu(), 2) * x.mean(),
    "transposed": lambda m, x: torch.tanh(F.conv_transpose2d(x, m.turned.weight.detach(), m.turned.bias)),
    "depthwise": lambda m, x: torch.tanh(F.conv2d(x, m.each.weight.detach(), m.each.bias, groups=3)),
    "what it made": lambda m, x: m.conv(x).detach() * torch.tanh(m.conv(x)),
    "what it makes, beside it": lambda m, x: (y := m.conv(x) * 0.5) + torch.tanh(y.clone().detach()) * y,
    "a linear layer's": lambda m, x: torch.tanh(F.linear(x, m.linear.weight.detach(), m.linear.bias)),
    "a norm's": lambda m, x: m.norm(x.detach()).relu() * x.mean(),
    "a pool's": lambda m, x: F.max_pool2d((x.detach() * m.norm.weight[:, None, None]).relu(), 2),
}
IN_ONE = ("the input", "the weight", "under a softmax", "under a pool", "transposed", "what it makes, beside it")


@pytest.mark.parametrize("what", FORWARDS)
def test_no_step_wants_a_gradient_of_it(what: str) -> None:
    plan = fuse(trace(Net(FORWARDS[what]), [torch.randn(2, 3, 8, 8)]))
    for step in plan.steps:
        if isinstance(step, Fused):
            assert not {operand.name for operand in step.all_operands if operand.constant} & {*step.wanted}, step.name


@pytest.mark.slow
def test_it_gets_none() -> None:
    torch.manual_seed(0)
    module = Net(*(FORWARDS[what] for what in IN_ONE))
    eager, x = copy.deepcopy(module), torch.randn(2, 3, 8, 8)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    fused = crucible.fuse(module, ours, emulate=True)
    for what, mine, other in zip(IN_ONE, fused(ours), eager(theirs), strict=True):
        cotangent = torch.randn_like(other)
        pairs = zip(
            torch.autograd.grad(mine, [ours, *module.parameters()], cotangent, allow_unused=True, retain_graph=True),
            torch.autograd.grad(other, [theirs, *eager.parameters()], cotangent, allow_unused=True, retain_graph=True),
            strict=True,
        )
        for one, two in pairs:
            expected = torch.zeros(()) if two is None else two
            found = torch.zeros(()) if one is None else one
            assert (found - expected).norm() <= 1e-2 * expected.norm() + 1e-4, what
