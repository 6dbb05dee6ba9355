"""Kernels read parts of a tensor where they lie; their gradients have no gaps."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from beside_eager import assert_same
from interpret import check
from torch import nn

import crucible
from crucible.capture import trace
from crucible.plan.layouts import dense, without_gaps
from crucible.plan.planner import fuse
from crucible.plan.steps import Fused, Plan

B, N, D = 3, 4, 8


class Net(nn.Module):
    """A linear layer, whose result falls into parts."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.whole = nn.Linear(D, 3 * D)
        self.conv = nn.Conv1d(N, 5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def gated(m: Net, x: torch.Tensor) -> torch.Tensor:
    a, b, c = m.whole(x).chunk(3, -1)
    return (torch.tanh(a) * torch.sigmoid(b) + c).cumsum(0)


def two_of_three(m: Net, x: torch.Tensor) -> torch.Tensor:
    a, b, _ = m.whole(x).chunk(3, -1)
    return (torch.tanh(a) * torch.sigmoid(b)).cumsum(0)


def heads(m: Net, x: torch.Tensor) -> torch.Tensor:
    q, k, v = m.whole(x).view(B, N, 3, 2, D // 2).permute(2, 0, 3, 1, 4).unbind(0)
    return torch.softmax((q * 0.5) @ k.transpose(-2, -1), -1) @ v


def rows(m: Net, x: torch.Tensor) -> torch.Tensor:
    a, b = m.whole(x).split([D, 2 * D], -1)
    return F.layer_norm(a, (D,)) @ F.softmax(b, -1).mT.mT.sum(-1, keepdim=True).expand(B, N, D).mT


def not_whole_packs(m: Net, x: torch.Tensor) -> torch.Tensor:
    a, b = m.whole(x).split([3, 3 * D - 3], -1)
    return torch.tanh(a).sum() * torch.tanh(b).cumsum(0)


def for_a_convolution(m: Net, x: torch.Tensor) -> torch.Tensor:
    a, b, _ = m.whole(x).chunk(3, -1)
    return m.conv(torch.tanh(a)) * torch.sigmoid(b).sum()


def for_a_pool(m: Net, x: torch.Tensor) -> torch.Tensor:
    a, _, _ = m.whole(x).chunk(3, -1)
    return F.max_pool1d(torch.tanh(a), 2)


def repeated(m: Net, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(m.whole(x)[:, :1].expand(B, N, 3 * D)) * m.whole(x)


def factors_of_rows(m: Net, x: torch.Tensor) -> torch.Tensor:
    every_second = m.whole(x)[0, :, ::D]
    return F.softmax(x[0] * every_second[:, :1], -1).cumsum(0)


CASES: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "gated": (gated, 3),
    "two of three": (two_of_three, 2),
    "heads": (heads, 3),
    "rows": (rows, 2),
    "not in whole packs": (not_whole_packs, 2),
    "factors of rows": (factors_of_rows, 1),
    "a convolution": (for_a_convolution, 1),
    "a pool": (for_a_pool, 0),
    "repeated behind it": (repeated, 1),
}
"""Forward, and how many tensors that kernels read have gaps."""


def read_with_gaps(plan: Plan) -> set[object]:
    """Views, and parts within their tensors."""
    steps = [step for step in plan.steps if isinstance(step, Fused)]
    views = {name for step in steps for name in step.reads if dense(plan.types[name]) != plan.types[name]}
    return views | {(held, step.parts[name]) for step in steps for name, held in step.operands.items()
                    if name in step.parts}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_parts_are_read_where_they_lie(name: str) -> None:
    function, count = CASES[name]
    flows = name not in ("a convolution", "a pool")  # gradients, through what carries plans out
    plan = check(Net(function), torch.randn(B, N, D), gradients=flows, unused=True)
    assert len(read_with_gaps(plan)) == count


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("name", ["heads", "not in whole packs"])
def test_kernels_read_them_there(name: str) -> None:
    module, x = Net(CASES[name][0]), torch.randn(B, N, D)
    fused = crucible.fuse(copy.deepcopy(module), x, emulate=True)
    assert_same(fused, module, [x], near=1e-3)


def crossing(m: Net, x: torch.Tensor) -> torch.Tensor:
    a, b, _ = m.whole(x).chunk(3, -1)
    for _ in range(30):
        a, b = torch.tanh(a + b), torch.sin(a - b)
    return (a * b).cumsum(0)


def test_paths_that_cross_are_walked_once() -> None:
    """There are two to the power of 30."""
    assert len(read_with_gaps(fuse(trace(Net(crossing), [torch.randn(B, N, D)])))) == 2


def test_gradients_of_parts_have_no_gaps() -> None:
    """Of those that do not fill it: together they would be a tensor."""
    plan = fuse(trace(Net(two_of_three), [torch.randn(B, N, D)]))
    (step,) = [each for each in plan.steps if isinstance(each, Fused) and each.backward and len(each.reads) == 2]
    assert step.backward is not None
    for result in step.backward.results:
        assert 1 + sum((n - 1) * s for n, s in zip(step.backward.shape, result.strides, strict=True)) == B * N * D


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((3, 4, 8), (96, 24, 1), (32, 8, 1)),
        ((2, 3, 4), (1, 80, 2), (1, 8, 2)),
        ((2, 3, 4), (12, 4, 1), (12, 4, 1)),
        ((2, 3, 4), (0, 8, 1), (0, 4, 1)),
        ((2, 1, 4), (24, 7, 3), (4, 1, 1)),
    ],
)
def test_the_order_stays(shape: tuple[int, ...], strides: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert without_gaps(shape, strides) == expected


def test_a_part_with_one_gradient_a_row() -> None:
    torch.manual_seed(0)

    class Weighed(nn.Module):
        def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            one, other = c.split(1, 1)
            return (x * one.unsqueeze(-1)).sum(-1) + (x * other.unsqueeze(-1)).sum(-1)

    check(Weighed(), torch.randn(2, 1, 3), torch.randn(2, 2))
