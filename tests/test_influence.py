"""Which part of an output one element of a weight reaches."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from crucible.judge.boundary.influence import can_be_moved, reached

torch.manual_seed(0)
X = torch.randn(2, 6, 9)
WEIGHT = torch.randn(8, 6, 3)
TRANSPOSED = torch.randn(6, 8, 3)


def conv(weight: torch.Tensor) -> torch.Tensor:
    return F.conv1d(X, weight)


def conv_transpose(weight: torch.Tensor) -> torch.Tensor:
    return F.conv_transpose1d(X, weight)


def misread(weight: torch.Tensor) -> torch.Tensor:
    """As if it were [out, in, taps]."""
    return F.conv_transpose1d(X, weight.reshape(8, 6, 3).transpose(0, 1))


@pytest.mark.parametrize(
    ("answer", "weight", "places"),
    [
        (conv, WEIGHT, [-1, 0, -1]),
        (conv_transpose, TRANSPOSED, [-1, 1, -1]),
        (misread, TRANSPOSED, [-1, 0, -1]),
        (lambda w: conv_transpose(w).softmax(1), TRANSPOSED, [-1, 1, -1]),
        (lambda w: conv_transpose(w).sum(), TRANSPOSED, []),
        (lambda w: conv_transpose(w) * 0, TRANSPOSED, [-1, -1, -1]),
        (lambda w: conv_transpose(w) / 0, TRANSPOSED, [-1, -1, -1]),
        (lambda w: X.new_zeros(2, 0, 3), TRANSPOSED, [-1, -1, -1]),
    ],
)
def test_the_index_at_which_a_moved_weight_shows(answer: object, weight: torch.Tensor, places: list[int]) -> None:
    assert reached(answer, weight) == places  # type: ignore[arg-type]


def test_answers_of_two_shapes_reach_nothing() -> None:
    shapes = iter([(2, 8), (2, 9)])
    assert reached(lambda w: torch.ones(next(shapes)), WEIGHT) == []


def test_what_has_no_two_leading_dimensions_is_not_moved() -> None:
    weights = [torch.ones(3), torch.ones(1, 4), torch.ones(4, 1, 3), torch.ones(2, 2).int(), torch.ones(2, 2)]
    assert [can_be_moved(weight) for weight in weights] == [False, False, False, False, True]
