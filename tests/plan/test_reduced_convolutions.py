"""Plans in which a convolution's output is reduced over its space: passes over its product, or programs over memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from test_plans import Module, calls, check, kernels
from torch import nn

from crucible.algebra.convolution.reducing import ReducingConvolution
from crucible.plan.steps import Fused, Plan

SPACE = (2, 3, 4)


def planned(function: Callable[[Module, torch.Tensor], object], x: torch.Tensor | None = None, **more: object) -> Plan:
    """Behind a transposed convolution whose product is cheap to compute again; x is (2, 16, 4, 8, 16)."""
    module = Module(function, conv=nn.ConvTranspose3d(16, 16, 3, 2, 1, 1), **more)
    return check(module, torch.rand(2, 16, 4, 8, 16) if x is None else x, gradients=False)


def reducing(plan: Plan) -> list[str]:
    return [s.name for s in plan.steps if isinstance(s, Fused) and isinstance(s.compute, ReducingConvolution)]


def test_a_softmax_over_space_is_inside_of_the_convolution() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = torch.clamp(self.conv(x), 0, 1)
        return F.softmax(y.flatten(2), dim=2).reshape(y.shape) * self.scale

    plan = planned(forward, scale=torch.randn(1, 16, 1, 1, 1))
    assert kernels(plan) == reducing(plan) == ["conv_transpose3d_clamp_softmax_mul"]
    (step,) = plan.steps
    assert isinstance(step, Fused) and [*step.saved] == ["saved_total"]  # of the clamped no maximum is taken
    assert any("no maximum is needed" in note for note in step.notes)


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: F.softmax(self.conv(x).flatten(2), 2),
        lambda self, x: F.log_softmax(self.conv(x).transpose(3, 4).flatten(2), 2),
        lambda self, x: F.instance_norm(F.relu(self.conv(x))),
        lambda self, x: (lambda y: y * torch.sigmoid(y.mean(SPACE, keepdim=True)))(self.conv(x)),
        lambda self, x: F.relu(self.conv(x)).mean(SPACE) * 2,
        lambda self, x: torch.logsumexp(self.conv(x), SPACE, keepdim=True) + 1,
        lambda self, x: self.conv(x).transpose(0, 1).sum(SPACE),
        lambda self, x: self.conv(x).amax(SPACE),
        lambda self, x: F.adaptive_avg_pool3d(F.gelu(self.conv(x)), 1),
    ],
    ids=["softmax", "log_softmax", "instance_norm", "gate", "mean", "logsumexp", "sum", "amax", "average"],
)
def test_reductions_over_space_are_inside(function: Callable[[Module, torch.Tensor], object]) -> None:
    plan = planned(function)
    assert not calls(plan) and kernels(plan) == reducing(plan) and len(plan.steps) == 1


def test_other_reductions_read_memory() -> None:
    for dim in (1, 2, (0, 2, 3, 4)):
        plan = planned(lambda self, x, dim=dim: self.conv(x).sum(dim))
        assert kernels(plan) == ["conv_transpose3d", "sum"]
    plan = planned(lambda self, x: F.group_norm(self.conv(x), 4))
    assert kernels(plan) == ["conv_transpose3d", "group_norm"]


def test_what_follows_reads_what_was_reduced() -> None:
    def forward(self: Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.instance_norm(self.conv(x))
        return F.max_pool3d(y, 2), y.sum(1), y.softmax(4)

    plan = planned(forward)
    assert reducing(plan) == ["conv_transpose3d_instance_norm"] and len(kernels(plan)) == 4


def test_what_splits_channels_behind_a_reduction_reads_memory() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = F.instance_norm(self.conv(x))
        return (y.reshape(2, 4, 4, *y.shape[2:]) * self.factor).relu()

    plan = planned(forward, factor=torch.randn(4, 1, 1, 1, 1))
    assert reducing(plan) == ["conv_transpose3d_instance_norm"] and len(kernels(plan)) == 2


def test_a_product_that_is_dear_is_written_once() -> None:
    module = Module(lambda self, x: F.instance_norm(F.relu(self.conv(x))), conv=nn.Conv3d(16, 4, 3, padding=1))
    plan = check(module, torch.rand(2, 16, 2, 3, 4), gradients=False)
    assert kernels(plan) == ["conv3d", "bias_relu_instance_norm"] and not reducing(plan)
    assert isinstance(plan.steps[1], Fused) and "the product is written and read" in plan.steps[1].notes[0]


def test_a_turned_output_is_not_taken_for_one_of_the_same_shape() -> None:
    plan = planned(lambda self, x: F.relu(self.conv(x).transpose(3, 4)) + 1, torch.rand(1, 16, 2, 3, 3))
    assert kernels(plan) == ["conv_transpose3d_relu_add"]
