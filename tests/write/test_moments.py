"""Sums that are made of moments, against the same sums of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from crucible.algebra.evaluate import evaluate_program
from crucible.algebra.expression import Expr, parameter, tensor
from crucible.algebra.moments import Given, given, without_elements
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous

Array = np.ndarray[Any, Any]
NAMES = ("near", "off", "off_squared")
X, ROW, CHANNEL = tensor("x"), parameter("row"), parameter("channel")
POLYNOMIALS: dict[str, Callable[[Expr], Expr]] = {
    "itself": lambda x: x,
    "off a number": lambda x: x - ROW,
    "squared": lambda x: (x - ROW).square(),
    "a product": lambda x: (x * CHANNEL - 1) * (ROW - x),
    "scaled": lambda x: x * (ROW * CHANNEL).exp() + 2,
    "negative": lambda x: -(x * x),
}
OTHERS: dict[str, Callable[[Expr], Expr]] = {
    "cubed": lambda x: x * x * x,
    "bent": lambda x: x.relu(),
    "a function": lambda x: x.exp(),
    "a quotient": lambda x: ROW / x,
    "with another tensor": lambda x: x * tensor("whole"),
    "no elements": lambda x: ROW,
}


def program(
    made: Sequence[Callable[[Expr], Expr]], batch: int, groups: int, of_group: int, space: Sequence[int], rows: str,
    *, elements: bool,
) -> Program:  # fmt: skip
    """Sums over a tensor [batch, groups * of_group, *space], for rows that are groups, channels, or channels of an
    image; the last reads the first. With a result for each element, or for rows alone."""
    whole = contiguous((batch, groups, of_group, *space))
    order = {"groups": (0, 1, 2), "channels": (1, 2, 0), "images' channels": (0, 1, 2)}[rows]
    count = {"groups": 2, "channels": 2, "images' channels": 3}[rows]
    sizes = (batch, groups, of_group)
    shape = (*(sizes[d] for d in order), *space)
    laid = (*(whole[d] for d in order), *whole[3:])
    of_row = (*contiguous(shape[:count]), *(0 for _ in shape[count:]))
    of_channel = (*((0, of_group, 1)[d] for d in order), *(0 for _ in space))
    operands = (
        Operand("x", "float32", laid),
        Operand("row", "float32", of_row, shared=True),
        Operand("channel", "float32", of_channel, shared=True),
        Operand("whole", "float32", laid),
    )
    sums = [Reduction(f"sum_{n}", "sum", each(X)) for n, each in enumerate(made)]
    sums.append(Reduction("around", "sum", (X - sums[0].leaf * 0.01).square()))
    results = [
        Result(f"made_{n}", "float32", contiguous(shape[:count]), each.leaf + ROW) for n, each in enumerate(sums)
    ]
    results += [Result("normed", "float32", laid, (X - sums[0].leaf) * sums[-1].leaf * CHANNEL)] if elements else []
    return Program("norm", shape, count, operands, tuple(sums), tuple(results))


def moments(x: Array, near: Array) -> dict[str, Array]:
    """Of a tensor [N, C, space]."""
    off = x - near[None, :, None]
    return {"near": near, "off": off.sum(2).ravel(), "off_squared": (off**2).sum(2).ravel()}


def run(of: Program, found: Given, values: dict[str, Array]) -> dict[str, Array]:
    known = dict(values)
    first, *rest = without_elements(of, found)[0]
    for each in (first, *rest):
        known |= evaluate_program(each, known)
    assert not {"x", "whole"} & {each.name for each in first.operands}
    return known


@drawn(
    st.lists(st.sampled_from(sorted(POLYNOMIALS)), min_size=1, max_size=3),
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3),
    st.lists(st.integers(2, 4), min_size=1, max_size=3),
    st.sampled_from(["groups", "channels", "images' channels"]), st.booleans(), st.integers(0, 2**31),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_sums_of_polynomials_are_those_of_elements(
    kinds: list[str], batch: int, groups: int, of_group: int, space: list[int], rows: str, elements: bool, seed: int
) -> None:
    """Whatever number the moments are around."""
    of = program([POLYNOMIALS[each] for each in kinds], batch, groups, of_group, space, rows, elements=elements)
    draw = np.random.default_rng(seed)
    shape = (batch, groups * of_group, int(np.prod(space)))
    found = given(of, "x", (batch, groups * of_group, *space), NAMES)
    assert found is not None
    x = draw.standard_normal(shape)
    values = {name: draw.standard_normal(64) for name in ("row", "channel")} | {"x": x.ravel(), "whole": x.ravel()}
    made = run(of, found, values | moments(x, draw.standard_normal(shape[1]) * 3))
    for name, wanted in evaluate_program(of, values).items():
        np.testing.assert_allclose(made[name], wanted, rtol=1e-9, atol=1e-9)
    assert len(without_elements(of, found)[0]) == 1 + elements


@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_need_elements(name: str) -> None:
    of = program([OTHERS[name]], 2, 2, 2, (3,), "groups", elements=True)
    assert given(of, "x", (2, 4, 3), NAMES) is None


def test_a_maximum_needs_elements() -> None:
    of = program([POLYNOMIALS["itself"]], 2, 2, 2, (3,), "groups", elements=True)
    largest = Program(of.name, of.shape, of.rows, of.operands, (Reduction("sum_0", "max", X),), of.results[:1])
    assert given(largest, "x", (2, 4, 3), NAMES) is None


@pytest.mark.parametrize("why", ["a part", "another order", "space among rows", "repeated"])
def test_a_tensor_that_is_seen_otherwise_needs_its_elements(why: str) -> None:
    shape, rows, strides = (2, 4, 3), 1, (12, 3, 1)
    if why == "a part":
        shape = (2, 3, 3)
    if why == "another order":
        strides = (12, 1, 4)
    if why == "space among rows":
        shape, rows, strides = (2, 3, 4), 2, (12, 1, 3)
    if why == "repeated":
        strides = (12, 3, 0)
    total = Reduction("total", "sum", X)
    result = Result("made", "float32", contiguous(shape[:rows]), total.leaf)
    of = Program("sums", shape, rows, (Operand("x", "float32", strides),), (total,), (result,))
    assert given(of, "x", (2, 4, 3), NAMES) is None


@pytest.mark.parametrize("mean", [0.0, 30.0, 1000.0])
def test_near_the_values_variances_keep_their_precision(mean: float) -> None:
    """In float32, of moments around a value of the tensor; around 0 of a mean of 1000 nothing of it would be left."""
    draw = np.random.default_rng(1)
    x = (mean + draw.standard_normal((1, 2, 4000))).astype(np.float32)
    of = program([POLYNOMIALS["squared"]], 1, 1, 2, (4000,), "groups", elements=False)
    found = given(of, "x", (1, 2, 4000), NAMES)
    assert found is not None
    row = x[0, 0, 7]
    made = run(of, found, {"row": np.array([row]), "channel": x[0, 0, :2]} | moments(x, x[0, :, 11].copy()))
    squares = float(((x.astype(np.float64) - float(row)) ** 2).sum()) + float(row)
    np.testing.assert_allclose(float(made["made_0"][0]), squares, rtol=2e-6)
