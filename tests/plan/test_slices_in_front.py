"""Slices of what a function makes element by element, taken of its operands instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from interpret import check, fused_steps
from torch import nn

from crucible.plan.steps import Call, Plan

Forward = Callable[["Net", torch.Tensor, torch.Tensor], torch.Tensor]
D = 16


class Net(nn.Module):
    """Products that lie in memory, and what is made of them."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.one, self.other = nn.Linear(D, 4 * D, bias=False), nn.Linear(D, 4 * D, bias=False)
        self.row = nn.Parameter(torch.randn(4 * D))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.function(self, x, y)


def kinds(plan: Plan) -> list[str]:
    return [step.operation.kind for step in plan.steps if isinstance(step, Call)]


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, D), torch.randn(3, D)


def test_gates_of_a_cell_are_one_kernel() -> None:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        i, f, g, o = (m.one(x) + m.other(y)).chunk(4, 1)
        return torch.sigmoid(o) * torch.tanh(torch.sigmoid(f) * y + torch.sigmoid(i) * torch.tanh(g))

    plan = check(Net(forward), *inputs(), unused=True)
    (step,) = fused_steps(plan)
    assert kinds(plan) == ["linear", "linear"] and len(step.parts) == 8


def gated(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, b = (m.one(x) * 2 + m.other(y).sigmoid()).chunk(2, 1)
    return a * b


def of_rows(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, b = (m.one(x) * y[:, :1].exp()).split([D, 3 * D], 1)
    return a.tanh() * b.sigmoid().view(3, 3, D).sum(1)


@pytest.mark.parametrize("forward", [gated, of_rows])
def test_chains_are_taken_apart(forward: Forward) -> None:
    plan = check(Net(forward), *inputs(), unused=True)
    assert len(fused_steps(plan)) <= 2


def with_a_row(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of which each part would be a gradient of its own."""
    a, b, c, d = (m.one(x) + m.row).chunk(4, 1)
    return a * b + c * d


def read_twice(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    whole = m.one(x) + m.other(y)
    a, b, c, d = whole.chunk(4, 1)
    return (a * b + c * d).sum() + whole.cumsum(0)


def for_products(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, b, c, d = (m.one(x) + m.other(y)).chunk(4, 1)
    return m.one(a) + m.other(b) + m.one(c) * m.other(d)


def of_a_norm(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, b, c, d = (F.layer_norm(m.one(x), (4 * D,)) + m.other(y)).chunk(4, 1)
    return a * b + c * d


@pytest.mark.parametrize("forward", [with_a_row, read_twice, for_products, of_a_norm])
def test_what_kernels_would_do_twice_stays(forward: Forward) -> None:
    plan = check(Net(forward), *inputs(), unused=True)
    added = [step for step in fused_steps(plan) if any(word.startswith("add") for word in step.covers)]
    assert added and not any(len(step.parts) > 4 for step in added)


@settings(max_examples=25, deadline=None)
@drawn(
    st.sampled_from([(2, 3, 8), (4, 8), (3, 2, 2, 4)]),
    st.integers(-3, 3),
    st.sampled_from([2, 4]),
    st.lists(st.sampled_from(["sum", "product", "exp", "row"]), min_size=1, max_size=3),
)
def test_any_chain_computes_what_it_did(shape: tuple[int, ...], dim: int, count: int, steps: list[str]) -> None:
    class Chain(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            a, b = x.cumsum(0), y.cumsum(0)
            for step in steps:
                a = (
                    a + b
                    if step == "sum"
                    else a * b
                    if step == "product"
                    else a * y[..., :1]
                    if step == "row"
                    else a.sin()
                )
            made = [part.tanh() * (n + 1) for n, part in enumerate(a.chunk(count, axis))]
            return torch.cat(made[::-1], axis) if a.shape[axis] % count else sum(made)  # type: ignore[return-value]

    axis = dim % len(shape)
    torch.manual_seed(0)
    check(Chain(), torch.randn(shape), torch.randn(shape), unused=True)
