"""Reductions that read one another's results: one kernel, one gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from interpret import check, fused_steps
from torch import nn

from crucible.algebra.evaluate import evaluate_program
from crucible.algebra.expression import tensor
from crucible.algebra.program import Operand, Program, Reduction, Result
from crucible.plan.reduced_along import refined

SHAPE = (4, 6, 5, 8)


class Of(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(torch.tanh(x) * 2)


def mean_and_spread(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean = y.mean((2, 3), keepdim=True)
    off = y - mean.detach()
    return mean.cumsum(1), (off * off).mean((2, 3))


def in_groups(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean = y.mean((2, 3), keepdim=True)
    off = y - mean.detach()
    return mean.cumsum(1), (off * off).mean((2, 3)).view(4, 2, 3)


def around_twice_the_mean(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whose derivative by the mean is not 0: that none flows is for the detach to say."""
    mean = y.mean((2, 3), keepdim=True)
    return mean.cumsum(1), (y - 2 * mean.detach()).square().mean((2, 3))


def around_a_mean_that_learns(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean = y.mean((2, 3), keepdim=True)
    seen = mean.cumsum(1)
    return seen, (y - mean * 2).square().mean((2, 3))


def of_two_tensors(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean = y.cumsum(2).mean((2, 3), keepdim=True)
    return mean.cumsum(1), (y.cumsum(3) - mean.detach()).square().mean((2, 3))


def over_other_dims(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean = y.cumsum(1).mean((2, 3), keepdim=True)
    return mean.cumsum(1), (y.cumsum(1) - mean.detach()).square().mean((1, 2, 3))


def reducing(function: Callable[[torch.Tensor], Any]) -> list[int]:
    """Results of each kernel that reduces the tensor."""
    torch.manual_seed(1)
    plan = check(Of(lambda y: function(y.cumsum(3))), torch.randn(SHAPE))
    steps = [each for each in fused_steps(plan) if isinstance(each.compute, Program)]
    whole = [each for each in steps if each.compute.reductions and len(each.compute.shape) > 2]
    return [len(each.results) for each in whole]


@pytest.mark.parametrize("function", [mean_and_spread, in_groups, around_twice_the_mean])
def test_one_kernel_makes_both(function: Callable[[torch.Tensor], Any]) -> None:
    assert reducing(function) == [2]


@pytest.mark.parametrize("function", [around_a_mean_that_learns, of_two_tensors, over_other_dims])
def test_what_learns_or_is_another_tensor_stays_apart(function: Callable[[torch.Tensor], Any]) -> None:
    assert reducing(function) == [1, 1]


@pytest.mark.parametrize(("shape", "rows"), [((4, 2, 3, 5, 8), 3), ((2, 2, 6, 5, 8), 3), ((4, 6, 5, 2, 4), 2)])
def test_a_program_over_dims_cut_in_several_is_the_same(shape: tuple[int, ...], rows: int) -> None:
    total = Reduction("total", "sum", tensor("x"))
    result = Result("made", "float32", (6, 1), total.leaf)
    program = Program("sums", SHAPE, 2, (Operand("x", "float32", (240, 40, 8, 1)),), (total,), (result,))
    cut = refined(program, shape)
    assert cut is not None and (cut.shape, cut.rows) == (shape, rows)
    x = torch.randn(SHAPE, dtype=torch.float64).flatten().numpy()
    assert (evaluate_program(cut, {"x": x})["made"] == evaluate_program(program, {"x": x})["made"]).all()


@pytest.mark.parametrize("shape", [(4, 6, 40), (4, 6, 5), (6, 4, 5, 8), (4, 6, 5, 8, 1, 2)])
def test_dims_that_are_no_cuts_are_refused(shape: tuple[int, ...]) -> None:
    program = Program("sums", SHAPE, 2, (), (), ())
    assert refined(program, shape) is None
