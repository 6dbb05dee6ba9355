"""Slices of one tensor become one call where that is the same, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from interpret import check
from torch import nn

from crucible.capture import trace
from crucible.plan.parts import with_parts_by_one_call

Forward = Callable[[torch.Tensor], Any]
CASES: dict[str, tuple[Forward, dict[str, int]]] = {
    "all of it": (lambda y: y[:, :2] * y[:, 2:4] + y[:, 4:], {"split_with_sizes": 1}),
    "not in order, from the end": (lambda y: y[:, -2:] * y[:, :2] + y[:, 2:-2], {"split_with_sizes": 1}),
    "with a gap": (lambda y: y[:, :2] + y[:, 4:], {"split_with_sizes": 1}),
    "along two dims": (lambda y: y[:2].sum() * y[2:].sum() + y[:, :3].sum() * y[:, 3:].sum(), {"split_with_sizes": 2}),
    "places": (lambda y: y[0] * y[3] + y[1] - y[-2], {"unbind": 1}),
    "most places": (lambda y: y[0] * y[3] + y[1], {"unbind": 1}),
    "little of it": (lambda y: y[:, :1] + y[:, 5:], {"slice": 2}),
    "one alone": (lambda y: y[:, :5] * 2, {"slice": 1}),
    "overlapping": (lambda y: y[:, :4] + y[:, 2:], {"slice": 2}),
    "the same twice": (lambda y: y[:, :4].sin() + y[:, :4].cos(), {"slice": 1}),
    "the same in two ways": (
        lambda y: y[:, :4].sin() + y[:, -6:4] * y[:, 5:].sum() + y[:, -1:],
        {"split_with_sizes": 1},
    ),
    "the same as an output": (lambda y: (y[:, :4], y[:, :4] * 2), {"slice": 2}),
    "every second": (lambda y: y[:, ::2] + y[:, 1::2], {"slice": 2}),
    "an output": (lambda y: (y[:, :3], y[:, 3:] * 2), {"slice": 2}),
    "seen in an output": (lambda y: (y[:, :3].T, y[:, 3:] * 2), {"slice": 2}),
    "numbers": (lambda y: (y > 0).long()[:, :3] + (y > 0).long()[:, 3:], {"slice": 2}),
}
"""Forward of a value in between, and the calls that take its parts."""


class Net(nn.Module):
    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x.cumsum(0))


@pytest.mark.parametrize("name", CASES)
def test_parts_are_taken_by_one_call(name: str) -> None:
    function, expected = CASES[name]
    graph = with_parts_by_one_call(trace(Net(function), [torch.randn(4, 6)]))
    kinds = [each.kind for each in graph.operations]
    taking = ("slice", "select", "split_with_sizes", "unbind")
    assert {kind: kinds.count(kind) for kind in taking if kind in kinds} == expected
    known = {value.name for value in graph.inputs}
    for operation in graph.operations:
        assert set(operation.inputs) <= known, f"{operation.name} reads what comes later"
        known |= {output.name for output in operation.outputs}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_stay_what_they_are(name: str) -> None:
    check(Net(CASES[name][0]), torch.randn(4, 6), gradients=name != "numbers")


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True), st.randoms())
def test_any_parts_that_do_not_meet_add_up_to_the_whole(cuts: list[int], random: Any) -> None:
    """The split's sizes are those of the tensor, each part is where its slice was."""
    edges = sorted({0, *cuts, 10})
    ranges = [(a, b) for a, b in pairwise(edges) if random.random() < 0.8]
    random.shuffle(ranges)
    graph = trace(Net(lambda y: sum(y[:, a:b].sum() * (a + 1) for a, b in ranges) + y.sum()), [torch.randn(2, 10)])
    rewritten = with_parts_by_one_call(graph)
    splits = [each for each in rewritten.operations if each.kind == "split_with_sizes"]
    for split in splits:
        sizes = split.args["split_sizes"]
        assert isinstance(sizes, tuple) and sum(map(int, sizes)) == 10  # type: ignore[arg-type]
        assert [each.tensor.shape[1] for each in split.outputs] == list(sizes)
        at = {each.name: sum(map(int, sizes[:n])) for n, each in enumerate(split.outputs)}  # type: ignore[arg-type]
        for before in (each for each in graph.operations if each.kind == "slice"):
            assert at[before.output.name] == (before.args["start"] or 0)
    whole = sum(b - a for a, b in ranges)
    if len(ranges) > 1:
        assert bool(splits) == (2 * whole >= 10)
