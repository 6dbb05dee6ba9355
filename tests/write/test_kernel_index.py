"""Index expressions fold, and their ranges hold what they can be."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.kernel.index import (
    ONE,
    ZERO,
    Binary,
    Index,
    Number,
    Place,
    Range,
    Size,
    Smaller,
    Variable,
    constant,
    lift,
    reach,
)
from crucible.kernel.meaning import SIGNS_OF

THREAD, BLOCK = Place("thread", 8), Place("block", 3)
J = Variable("j", "int")
TILES = Range(4, 28, 12)
"""Of the variable j."""


def test_what_is_known_is_folded() -> None:
    one, x = Size("vector", 1), THREAD
    assert x * one is x and one * x is x and x + 0 is x and 0 + x is x and x // one is x and x - 0 is x
    assert x % one == x * 0 == ZERO * x == ZERO // x == ZERO
    assert Number(6) + 2 == Number(8) and 3 * Number(5) == Number(15) and lift(7) // 2 == Number(3)
    assert Size("n", 4) + 1 == Binary("+", Size("n", 4), ONE)
    assert constant(Size("n", 4) * 3 + 1) == 13
    with pytest.raises(ValueError, match="is no constant"):
        constant(THREAD + 1)


def test_what_cancels_is_gone() -> None:
    """A row less what the thread is in it is where the block's rows begin."""
    row = Variable("row")
    place = (BLOCK * Size("lanes", 4) + THREAD % 4) * 2
    found = reach(row - THREAD % 4 * 2, {}, {row: place})
    assert found == Range(0, 16, 8)


def test_a_guard_narrows_to_whole_packs() -> None:
    assert Range(0, 40, 4).below(30) == Range(0, 28, 4)
    assert Range(3, 3, 7) == Range(3, 3, 0)


leaves = st.sampled_from([THREAD, BLOCK, J, Number(0), Number(5), Size("n", 6)])
numbers = st.sampled_from([Number(1), Number(2), Number(4), Size("m", 12), Size("odd", 5)])
indices = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, numbers).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, numbers).map(lambda pair: pair[0] // pair[1]),
        st.tuples(inner, numbers).map(lambda pair: pair[0] % pair[1]),
        st.tuples(inner, inner).map(lambda pair: Smaller(*pair)),
    ),
    max_leaves=6,
)


def value(index: Index, at: dict[Index, int]) -> int:
    if isinstance(index, Binary):
        return int(SIGNS_OF[index.sign](value(index.left, at), value(index.right, at)))
    if isinstance(index, Smaller):
        return min(value(index.left, at), value(index.right, at))
    return at[index] if index in at else constant(index)


@given(indices)
@settings(max_examples=150, deadline=None)
def test_a_range_holds_every_value(index: Index) -> None:
    found = reach(index, {J: TILES}, {})
    for thread, block, j in itertools.product(range(8), range(3), range(4, 29, 12)):
        each = value(index, {THREAD: thread, BLOCK: block, J: j})
        assert found.low <= each <= found.high
        assert each == found.low or (each - found.low) % found.step == 0
