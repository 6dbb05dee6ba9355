"""Chains that read what their convolution or their pool reads: gradients reach that in two ways."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import crucible
from support import some

pytestmark = pytest.mark.usefixtures("no_faults")
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Net(nn.Module):
    """A function of its input and a weight."""

    def __init__(self, shape: tuple[int, ...], function: Function) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.randint(-4, 5, shape) / 8), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight)


def softmax_over_space(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x.flatten(2), -1).view(x.shape)


def normed(x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, training=True)


READ_AGAIN: dict[str, tuple[tuple[int, ...], tuple[int, ...], Function]] = {
    "2d": ((2, 8, 9, 12), (8, 8, 3, 3), lambda x, w: F.silu(x) * F.conv2d(x, w, padding=1).sigmoid()),
    "3d": ((2, 4, 4, 5, 8), (4, 4, 3, 3, 3), lambda x, w: x * F.conv3d(x, w, padding=1).sigmoid()),
    "transposed": ((2, 4, 3, 5, 8), (4, 4, 3, 3, 3), lambda x, w: x + F.conv_transpose3d(x, w, padding=1).tanh()),
    "one for all channels": ((2, 1, 7, 12), (8, 1, 3, 3), lambda x, w: x * F.conv2d(x, w, padding=1).tanh()),
    "rows": ((2, 16, 4, 8, 16), (16, 16, 1, 1, 1), lambda x, w: x * softmax_over_space(F.conv3d(x, w).clamp(0, 1))),
    "weight": ((4, 4, 3, 4, 8), (4, 4, 1, 1, 1), lambda x, w: w * F.conv3d(x, w).tanh()),
    "average pool": ((2, 4, 6, 8), (4, 1, 1), lambda x, w: x * w - F.avg_pool2d(x, 3, 1, 1)),
    "maximum pool": ((2, 4, 6, 8), (4, 1, 1), lambda x, w: (x + w) * F.max_pool2d(x * w, 3, 1, 1)),
    "norm and pool": ((2, 4, 6, 8), (4, 1, 1), lambda x, w: x + w * F.max_pool2d(F.relu(normed(x) * w), 3, 1, 1)),
    "pool inside": ((2, 4, 4, 4, 8), (4, 4, 1, 1, 1), lambda x, w: F.max_pool3d(F.conv3d(x, w) * w[0], 2) * w[0]),
}


@pytest.mark.parametrize("case", some(list(READ_AGAIN), 6))
def test_gradients_of_both_readers_are_added_up(case: str) -> None:
    """Within what TF32 rounds off of the product's gradient; operands are exact in it. A gradient left out is a large
    part of the whole."""
    torch.manual_seed(0)
    shape, of_weight, function = READ_AGAIN[case]
    module, x = Net(of_weight, function), torch.randint(-8, 9, shape) / 8
    fused, exact = crucible.fuse(module, x, emulate=True), copy.deepcopy(module).double()
    cotangent = torch.randn(module(x).shape)
    found = []
    for each, dtype in ((fused, torch.float32), (exact, torch.float64)):
        given = x.to(dtype).requires_grad_()
        out = each(given)
        found.append([out, *torch.autograd.grad(out, [given, each.weight], cotangent.to(dtype))])
    for one, other in zip(*found, strict=True):
        assert (one.double() - other).abs().max() < 2e-3 * other.abs().max()
