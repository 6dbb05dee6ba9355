"""Interval arithmetic where random samples seldom come: infinities, zeros of either sign, NaN alone, exact bounds."""

from __future__ import annotations

import itertools
import math

import pytest

from crucible.algebra.interval import ANY, DOUBLE, ONLY_NAN, SINGLE, Interval, bfloat, half, negative, single
from crucible.algebra.polynomial import _cells, approximate

INF = math.inf
UNIT, TAIL, WHOLE = Interval(0.0, 1.0), Interval(1.0, INF), Interval(-INF, INF)


def test_infinities() -> None:
    assert SINGLE.add(TAIL, negative(TAIL)) == Interval(-INF, INF, nan=True)
    assert SINGLE.mul(UNIT, TAIL) == Interval(0.0, INF, nan=True)
    assert SINGLE.div(TAIL, TAIL) == Interval(0.0, INF, nan=True)
    assert SINGLE.div(UNIT, TAIL) == UNIT
    assert SINGLE.div(TAIL, UNIT) == WHOLE  # 1 / -0
    assert SINGLE.div(UNIT, UNIT) == Interval(-INF, INF, nan=True)


def test_float32_overflows_where_float64_does_not() -> None:
    large = Interval(1e20, 1e30)
    product = SINGLE.mul(large, large)
    assert product.high == INF
    assert product.low <= 1e40
    assert SINGLE.sub(product, product).nan
    assert DOUBLE.mul(large, large).high < 1.1e60


def test_nan_alone_spreads() -> None:
    for operation in (SINGLE.add, SINGLE.sub, SINGLE.mul, SINGLE.div):
        assert operation(ONLY_NAN, UNIT) == ONLY_NAN
        assert operation(UNIT, ONLY_NAN) == ONLY_NAN
    assert math.nan in ONLY_NAN
    assert 0.0 not in ONLY_NAN
    assert math.nan in ANY
    assert math.nan not in UNIT


def test_exact_bounds_stay() -> None:
    """So that clamps on whole numbers can vanish."""
    assert SINGLE.add(UNIT, Interval(3.0, 3.0)) == Interval(3.0, 4.0)
    assert SINGLE.mul(UNIT, Interval(-2.0, 2.0)) == Interval(-2.0, 2.0)


def test_both_the_number_and_its_float32_are_enclosed() -> None:
    found = SINGLE.constant(0.1)
    assert found.low == 0.1
    assert found.high == single(0.1)
    third = SINGLE.div(Interval(1.0, 1.0), Interval(3.0, 3.0))
    assert third.low < 1 / 3 < single(1 / 3) <= third.high


@pytest.mark.parametrize(
    ("round_", "value", "expected"),
    [
        (half, 65519.9, 65504.0),
        (half, 65520.0, INF),
        (half, 1 + 2**-11, 1.0),
        (half, 1 + 3 * 2**-11, 1 + 2**-9),
        (bfloat, 1 + 2**-8, 1.0),
        (bfloat, 1 + 3 * 2**-8, 1 + 2**-6),
        (bfloat, -3.4e38, -INF),
        (single, 1e39, INF),
        (single, -1e-50, 0.0),
    ],
)
def test_rounding(round_: object, value: float, expected: float) -> None:
    assert round_(value) == expected  # type: ignore[operator]


def test_proofs_cover_the_interval() -> None:
    """One side of 0 where polynomial and function have the same symmetry, else all of it; without gaps."""
    for kind, ends, covered in (
        ("gelu", (-1.0, 0.5), (0.0, 1.0)),
        ("silu", (0.5, 1.0), (0.5, 1.0)),
        ("exp", (0.0, 1.0), (0.0, 1.0)),
    ):
        found = approximate(kind, *ends)
        assert found is not None
        cells = _cells(found)
        assert (cells[0][0], cells[-1][1]) == covered
        assert all(left[1] == right[0] for left, right in itertools.pairwise(cells))


def test_quotients_by_a_plain_divisor_have_room_for_an_approximate_reciprocal() -> None:
    """Two units to either side; none beyond what is divided, and 0 stays 0."""
    third = SINGLE.div(Interval(1.0, 3.0), Interval(1.5, 9.0))
    assert third.low <= single(1 / 9) * (1 - 2**-23) and third.high >= single(2.0) + 2**-22
    assert SINGLE.div(Interval(-1.0, 2.0), TAIL) == Interval(-1.0, 2.0)
    assert SINGLE.div(Interval(0.0, 0.0), Interval(0.5, 2.0)) == Interval(0.0, 0.0)
    exact = SINGLE.div(Interval(1.0, 3.0), Interval(3.0, 3.0))  # of a constant it is rounded to the nearest
    assert exact == SINGLE.quotient(Interval(1.0, 3.0), Interval(3.0, 3.0)) and exact.high == 1.0
