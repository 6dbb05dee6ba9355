"""Rows with infinities, of masks say: what PyTorch makes of them, forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import crucible

INF, NAN = float("inf"), float("nan")
ROWS = ({}, {3: INF}, {3: -INF}, {3: NAN}, {3: INF, 7: -INF}, {3: INF, 7: INF}, dict.fromkeys(range(40), -INF))
"""What stands where in each row of 40 numbers."""
LARGEST = {torch.float32: 3e38, torch.float64: 1.7e308}


class Along(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor, int], torch.Tensor], dim: int) -> None:
        super().__init__()
        self.function, self.dim = function, dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.dim)


@pytest.mark.parametrize(
    ("function", "dim", "dtype"),
    [
        (torch.logsumexp, 1, torch.float32),
        (torch.logsumexp, 0, torch.float64),
        (torch.softmax, 1, torch.float32),
        (torch.log_softmax, 1, torch.float32),
    ],
)
def test_rows_with_infinities_are_pytorchs(
    function: Callable[[torch.Tensor, int], torch.Tensor], dim: int, dtype: torch.dtype
) -> None:
    """A row of which nothing is left but -inf had a logsumexp of NaN."""
    x = torch.randn(len(ROWS) + 1, 40, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for row, places in enumerate(ROWS):
        for place, value in places.items():
            x[row, place] = value
    x[-1, 5] = LARGEST[dtype]
    x = x if dim else x.T.contiguous()
    module = Along(function, dim)
    ours, right = x.clone().requires_grad_(), x.clone().requires_grad_()
    made, wanted = crucible.fuse(module, ours, emulate=True)(ours), module(right)
    torch.testing.assert_close(made, wanted, equal_nan=True)
    cotangent = torch.rand(made.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    made.backward(cotangent)
    wanted.backward(cotangent)
    torch.testing.assert_close(ours.grad, right.grad, equal_nan=True)
