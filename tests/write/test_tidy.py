"""Programs made cheaper: the same values, and what was said about them holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from harness import expected, random_storages
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import LAYOUTS, random_program
from programs import CASES

from crucible.algebra.expression import Expr, parameter, tensor
from crucible.algebra.interval import Interval
from crucible.algebra.program import Operand, Program, Reduction, Result
from crucible.algebra.ranges import interval
from crucible.algebra.tidy import LARGEST_EXPONENT, tidied, without_idle_maxima
from crucible.algebra.tidy import _sum as interval_of_sum

X = tensor("x")


def softmax(inner: Expr) -> Program:
    largest = Reduction("largest", "max", inner, constant=True)
    total = Reduction("total", "sum", (inner - largest.leaf).exp())
    result = Result("out", "float32", (7, 1), (inner - largest.leaf).exp() / total.leaf)
    return Program("softmax", (3, 7), 1, (Operand("x", "float32", (7, 1)),), (largest, total), (result,))


@pytest.mark.parametrize("name", [*CASES, *LAYOUTS])
def test_tidying_keeps_the_values(name: str) -> None:
    program = CASES[name]().program if name in CASES else LAYOUTS[name]()
    if sum(program.shape) < 2000:
        assert_same(program, 4)


@given(st.integers(0, 2**31), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_tidying_keeps_the_values_of_any_program(which: int, seed: int) -> None:
    assert_same(random_program(which), seed)


def assert_same(program: Program, seed: int) -> None:
    storages = random_storages(program, seed)
    wanted, found = expected(program, storages), expected(tidied(program).program, storages)
    for result in program.results:
        if result.name in found:
            value = wanted[result.name]
            atol = 3e-6 * max(1.0, float(np.abs(value).max(initial=0)))
            np.testing.assert_allclose(found[result.name], value, rtol=3e-6, atol=atol)
        else:
            assert 0 in program.shape


@pytest.mark.parametrize(
    ("inner", "stays"), [(X.clamp(0, 1), False), (X.tanh() * 60, False), (X.tanh() * 61, True), (X, True)]
)
def test_a_maximum_for_range_alone_goes_where_the_range_is_small(inner: Expr, stays: bool) -> None:
    program, notes = without_idle_maxima(softmax(inner))
    assert [r.name for r in program.reductions if r.kind == "max" and r.name in str(notes)] == []
    assert bool(notes) is not stays
    assert ("largest" in {r.name for r in tidied(softmax(inner)).program.reductions}) is stays


def test_no_power_overflows_without_the_maximum() -> None:
    """Not in a sum of 10^11 either, and none vanishes."""
    assert np.float32(np.exp(LARGEST_EXPONENT)) * 1e11 < np.finfo(np.float32).max
    assert np.float32(np.exp(-LARGEST_EXPONENT)) > np.finfo(np.float32).tiny


def test_what_a_row_shares_is_not_summed() -> None:
    factor = parameter("factor")
    total, peak = Reduction("total", "sum", factor * 2), Reduction("peak", "max", factor.exp())
    result = Result("out", "float32", (9, 1), X * total.leaf + peak.leaf)
    operands = (Operand("x", "float32", (9, 1)), Operand("factor", "float32", (1, 0), shared=True))
    program = Program("even", (4, 9), 1, operands, (total, peak), (result,))
    assert tidied(program).program.reductions == ()
    assert_same(program, 1)


def test_nothing_is_approximated_in_double() -> None:
    chain = Result("out", "float64", (1,), tensor("x", "float64").clamp(-1, 1).gelu())
    program = Program("chain", (9,), 1, (Operand("x", "float64", (1,)),), (), (chain,), "float64")
    assert tidied(program).notes == ()
    single = replace(program, precision="float32")
    assert "polynomial" in tidied(single).notes[0]


def test_a_cast_before_a_store_of_its_type_is_the_store() -> None:
    expr = X.sigmoid().cast("float16")
    program = Program("cast", (8,), 1, (Operand("x", "float32", (1,)),), (), (Result("out", "float16", (1,), expr),))
    assert "cast" not in {tidied(program).program.results[0].expr.kind}
    other = replace(program, results=(replace(program.results[0], dtype="float32"),))
    assert tidied(other).program.results[0].expr.kind == "cast"


def test_division_by_what_a_row_shares_is_one_division() -> None:
    found = tidied(softmax(X))
    assert "reciprocal" in found.notes[0]
    assert found.program.results[0].expr.kind == "mul"
    double = tidied(replace(softmax(X), precision="float64"))
    assert double.notes == () and double.program.results[0].expr.kind == "div"


@given(
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=200),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_sums_lie_where_they_are_said_to(values: list[float], backwards: bool) -> None:
    array = np.array(values[::-1] if backwards else values, np.float32)
    bounds = interval_of_sum(Interval(float(array.min()), float(array.max())), len(values))
    with np.errstate(all="ignore"):
        ordered = np.cumsum(array)[-1]  # one after the other, unlike sum()
    assert float(ordered) in bounds
    assert float(torch.tensor(values, dtype=torch.float64).sum()) in bounds


def test_bounds_of_reductions_reach_later_expressions() -> None:
    """A sum of squares is not negative: a relu of it is nothing."""
    total = Reduction("total", "sum", X.square())
    result = Result("out", "float32", (7, 1), X * total.leaf.relu())
    program = Program("norm", (3, 7), 1, (Operand("x", "float32", (7, 1)),), (total,), (result,))
    assert tidied(program).program.results[0].expr is X * total.leaf
    assert interval(total.expr).low == 0
