"""Convolutions whose windows lie side by side, as convolutions of one tap."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from test_plans import Module, calls, check, kernels, planned
from torch import nn

from crucible.plan.steps import Call, Plan

MANY = 68
"""More channels than convolutions of ours take."""


def weights(plan: Plan) -> list[tuple[int, ...]]:
    """The shapes of what PyTorch's convolutions multiply by."""
    steps = [step.operation for step in plan.steps if isinstance(step, Call) and step.operation.kind == "conv2d"]
    return [plan.types[operation.args["weight"].name].shape for operation in steps]  # type: ignore[union-attr]


def embedded(m: Module, x: torch.Tensor) -> torch.Tensor:
    return F.relu(m.conv(x).flatten(2).transpose(1, 2))


@pytest.mark.parametrize(("size", "bias"), [(2, True), (4, False)])
def test_patches_of_an_image_become_channels(size: int, bias: bool) -> None:
    plan = check(Module(embedded, conv=nn.Conv2d(3, MANY, size, size, bias=bias)), torch.randn(2, 3, 8, 12))
    assert kernels(plan)[0] == "pixel_unshuffle" and "conv2d" in calls(plan)
    assert weights(plan) == [(MANY, 3 * size * size, 1, 1)]
    assert plan.rewrites == ()  # the same products: nothing that is told apart


def test_what_comes_before_is_written_as_patches() -> None:
    plan = check(
        Module(lambda m, x: F.relu(m.conv(torch.sin(x))), conv=nn.Conv2d(3, MANY, 2, 2)), torch.randn(2, 3, 4, 6)
    )
    assert kernels(plan) == ["sin_pixel_unshuffle", "bias_relu"]


@pytest.mark.parametrize(
    ("conv", "shape"),
    [
        (nn.Conv2d(4, MANY, 2, 2), (2, 4, 4, 6)),  # channels that cuDNN takes as they are
        (nn.Conv2d(3, MANY, 2, 2), (2, 3, 5, 6)),  # a row is left over
        (nn.Conv2d(3, MANY, 3, 2), (2, 3, 5, 5)),  # windows overlap
        (nn.Conv2d(3, MANY, 2, 2, padding=1), (2, 3, 4, 6)),
        (nn.Conv2d(3, MANY, 2, 2, dilation=2), (2, 3, 6, 6)),
        (nn.Conv2d(3, MANY, (2, 1), (2, 1)), (2, 3, 4, 6)),
        (nn.Conv2d(3, MANY + 1, 2, 2, groups=3), (2, 3, 4, 6)),
        (nn.Conv2d(3, 8, 2, 2), (2, 3, 4, 6)),  # a convolution of ours
    ],
)
def test_other_convolutions_stay(conv: nn.Conv2d, shape: tuple[int, ...]) -> None:
    plan = planned(Module(embedded, conv=conv), torch.randn(shape))
    assert not any("pixel_unshuffle" in name for name in kernels(plan))
