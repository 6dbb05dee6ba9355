"""Recurrent cells by their formulas, alone and turn by turn."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from beside_eager import assert_same
from interpret import check, fused_steps
from torch import nn

import crucible
from crucible.plan.steps import Call, Plan
from support import some

CELLS = {
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
    "tanh": nn.RNNCell,
    "relu": lambda *sizes, bias: nn.RNNCell(*sizes, bias=bias, nonlinearity="relu"),
}


class Cell(nn.Module):
    """[2, T, 3] to the states behind T turns, 4 of each."""

    def __init__(self, kind: str, bias: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell: Any = CELLS[kind](3, 4, bias=bias)
        self.is_lstm = kind == "lstm"

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        states = []
        for turn in range(x.shape[1]):
            if self.is_lstm:
                h, c = self.cell(x[:, turn], (h, c))
            else:
                h = self.cell(x[:, turn], h)
            states.append(h)
        return torch.stack(states, 1), c * 2


def calls(plan: Plan) -> Counter[str]:
    return Counter(step.operation.kind for step in plan.steps if isinstance(step, Call))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", CELLS)
def test_turns_are_a_product_and_a_kernel(kind: str, bias: bool) -> None:
    plan = check(Cell(kind, bias), torch.randn(2, 5, 3), torch.randn(2, 4), torch.randn(2, 4), unused=True)
    assert calls(plan)["linear"] == 6 and not any("cell" in each for each in calls(plan))
    assert not {"split_with_sizes", "slice"} & calls(plan).keys()  # kernels read gates where they lie
    assert len(fused_steps(plan)) <= 7  # beside turns the biases' sum, and what is made of the last state


@pytest.mark.parametrize("kind", CELLS)
def test_one_cell_is_two_products_and_a_kernel(kind: str) -> None:
    plan = check(Cell(kind, True), torch.randn(2, 1, 3), torch.randn(2, 4), torch.randn(2, 4), unused=True)
    assert calls(plan)["linear"] == 2 and "by its formula" in plan.rewrites[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", some(list(CELLS), 2))
def test_kernels_compute_them_also_under_autocast(kind: str) -> None:
    module = Cell(kind, True)
    given = torch.randn(2, 5, 3), torch.randn(2, 4), torch.randn(2, 4)
    fused = crucible.fuse(copy.deepcopy(module), *given, emulate=True)
    assert_same(fused, module, given)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        own, eager = fused(*given)[0], module(*given)[0]
    assert own.dtype == eager.dtype
    torch.testing.assert_close(own, eager, rtol=2e-2, atol=2e-2)


def test_a_cell_without_a_batch() -> None:
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(3, 4)

        def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.cell(x, h))

    torch.manual_seed(0)
    assert check(One(), torch.randn(3), torch.randn(4), unused=True).rewrites == ("gru_cell by its formula",)
