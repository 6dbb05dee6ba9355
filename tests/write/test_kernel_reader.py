"""What the verifier's reader keeps is what it finds anew, and no more than what is known where it asks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.kernel import nodes as ir
from crucible.kernel.index import (
    ONE,
    ZERO,
    Compare,
    Condition,
    Either,
    Index,
    Number,
    Place,
    Range,
    Smaller,
    Table,
    Variable,
)
from crucible.kernel.reader import Reader
from crucible.kernel.whereabouts import COMPARED, SIGNS_OF

KEPT = ("_by_cases", "_inside_of", "_inside_registers", "_most", "_ways", "narrowed", "places", "within")
THREAD, K, J, OF = Place("thread", 6), Variable("k", "int"), Variable("j", "int"), Variable("of", "int")
KERNEL = ir.Kernel("k", (), (), 1, 6, "int", ())
leaves = st.sampled_from([THREAD, K, J, OF, ZERO, Number(3)])
numbers = st.sampled_from([Number(2), Number(3), Number(5)])


def _choice(parts: tuple[Index, Index, Index, int]) -> Index:
    asked, one, other, limit = parts
    return Either((Compare("<", asked, Number(limit)),), one, other)


indices = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: Smaller(*pair)),
        st.tuples(inner, numbers).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, numbers).map(lambda pair: pair[0] // pair[1]),
        st.tuples(inner, numbers).map(lambda pair: pair[0] % pair[1]),
        st.tuples(inner, inner, inner, st.integers(1, 6)).map(_choice),
    ),
    max_leaves=7,
)
guards = st.tuples(leaves, st.sampled_from(["<", ">=", "=="]), st.sampled_from([Number(2), Number(4), THREAD, K]))
"""What is known besides, of one place or another."""


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEPT:
        monkeypatch.setattr(Reader, name, getattr(Reader, name).__wrapped__)


def answers(asked: list[Index], guard: Condition, of: Index) -> list[Any]:
    """Where each lies, as near as is known, twice, outside of a condition and within it; and all that was said."""
    reader, found = Reader(KERNEL), list[Any]()
    ranges = {K: Range(0, 3), J: Range(0, 4, 2)}
    with reader.inside(ranges, holds=(Compare("<", J, K + 2),)):
        for _ in range(2):
            before, reader.here = reader.here, reader.here.defined(OF, of)
            found += [_of(reader, each) for each in asked]
            known = reader.narrowed(guard)
            if not any(each.is_empty for each in known.values()):
                with reader.inside(known, holds=guard):
                    found += [_of(reader, each) for each in asked]
            found += [_of(reader, each) for each in asked]
            reader.here = before
    return [*found, *dict.fromkeys(reader.wrong)]


def _of(reader: Reader, index: Index) -> list[Any]:
    reader.within(index, 4, "x", 2)
    return [reader.nearest(index), reader._most(index, 0), reader._near(index, 3), [*reader._by_values(index, 3)],
            reader.places(index, False)]  # fmt: skip


@given(st.lists(indices, min_size=1, max_size=3), guards, indices.filter(lambda index: "'of'" not in repr(index)))
@settings(max_examples=60, deadline=None)
def test_what_is_kept_is_what_is_found_anew(asked: list[Index], guard: tuple[Any, ...], of: Index) -> None:
    left, sign, right = guard
    condition = (Compare(sign, left, right),)
    kept = answers(asked, condition, of)
    with pytest.MonkeyPatch.context() as patch:
        plain(patch)
        assert kept == answers(asked, condition, of)


def value(index: Any, at: dict[Index, int]) -> int:
    if isinstance(index, Either):
        (each,) = index.condition
        holds = COMPARED[each.sign](value(each.left, at), value(each.right, at))
        return value(index.one if holds else index.other, at)
    if isinstance(index, Number):
        return index.value
    if isinstance(index, Smaller):
        return min(value(index.left, at), value(index.right, at))
    return at[index] if index in at else int(SIGNS_OF[index.sign](value(index.left, at), value(index.right, at)))


@given(st.lists(indices, min_size=2, max_size=3), indices.filter(lambda index: "'of'" not in repr(index)))
@settings(max_examples=60, deadline=None)
def test_it_holds_every_value(asked: list[Index], of: Index) -> None:
    """Of one that has answered for the others before, and where less was known."""
    reader = Reader(KERNEL)
    with reader.inside({K: Range(0, 3), J: Range(0, 4, 2)}):
        reader.here = reader.here.defined(OF, of)
        for each in asked:
            reader.nearest(each)
        with reader.inside({}, holds=(Compare("<", J, K + 1),)):
            found = [(each, reader.nearest(each), reader._most(each, 0)) for each in asked]
    for thread, i, j in itertools.product(range(6), range(4), range(0, 5, 2)):
        at: dict[Index, int] = {THREAD: thread, K: i, J: j}
        at[OF] = value(of, at)
        for each, near, most in found if j < i + 1 else ():
            assert near.low <= value(each, at) <= min(near.high, most)


def test_what_asks_for_the_same_goes_together() -> None:
    """On the right of a sum, and where another condition holds."""
    first, second = ((Compare("<", THREAD, Number(limit)),) for limit in (2, 4))
    reader = Reader(KERNEL)
    with reader.inside({K: Range(0, 3)}):
        assert reader.nearest(K + (Either(second, Number(4), ZERO) + Either(second, ZERO, Number(4)))) == Range(4, 7)
        within = Either(second, Number(4), ZERO) + Either(second, ZERO, Number(4))
        assert reader.nearest(Either(first, within, Number(4))) == Range(4, 4)


def test_what_is_asked_otherwise_is_found_otherwise() -> None:
    """Of other arguments, and where something is known to be less than something."""
    reader = Reader(KERNEL)
    reader.within(THREAD, 6, "x", 1)
    assert reader.wrong == []
    reader.within(THREAD, 5, "x", 1)
    assert len(reader.wrong) == 1
    with reader.inside({K: Range(0, 3), J: Range(0, 4)}):
        assert reader._most(J - K, 0) == 4
        with reader.inside({}, holds=(Compare("<", J, K),)):
            assert reader._most(J - K, 0) == -1 and reader._most(J - K, 1) == 4
        with reader.inside({}, holds=(Compare("<", THREAD, K),)):
            assert reader._most(J - K, 0) == 4


def test_registers_are_asked_for_anew() -> None:
    """Something else may be in them, or nothing."""
    flag = ir.Fragment("flag", "bool")
    reader, element = Reader(KERNEL), ir.Element(flag)
    condition = (Compare("!=", ir.Held(Range(0, 1), element), ZERO),)
    of = Either(condition, Number(8), ZERO)
    reader.put(element, declares=True)
    assert reader.nearest(of) == Range(0, 8, 8) and reader.wrong == []
    reader.flags[flag] = (Compare("<", THREAD, ONE),)
    assert reader.narrowed(condition)[THREAD] == Range(0, 0)
    reader.flags[flag] = (Compare("<", THREAD, Number(2)),)
    assert reader.narrowed(condition)[THREAD] == Range(0, 1)
    reader.filled.clear()
    reader.nearest(of)
    assert [*dict.fromkeys(reader.wrong)] == ["flag is read before anything is in it"]


def test_a_table_is_asked_for_anew() -> None:
    """It may not be declared there."""
    table = Table("table", (0, 2, 4))
    kernel = replace(KERNEL, body=(ir.Declare(table),))
    reader, guard = Reader(kernel), (Compare("<", THREAD, table[THREAD % 3]),)
    with reader.inside({}):
        reader.declare(table)
        assert reader.narrowed(guard)[THREAD] == Range(0, 3) and reader.wrong == []
    reader.narrowed(guard)
    assert reader.wrong == ["table is not declared where it is used"]


def test_what_was_said_is_said_again() -> None:
    reader = Reader(KERNEL)
    for name in ("x", "y", "x"):
        reader.within(THREAD, 5, name, 1)
    assert reader.wrong == [f"{name} is read or written at 0 to 5, and has 5 elements" for name in "xyx"]


@given(st.lists(st.tuples(st.sampled_from([ZERO, ONE, THREAD, K]), st.sampled_from([ZERO, THREAD])), max_size=6),
       st.booleans())  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_a_warps_own_places_are_apart_or_the_same(places: list[tuple[Index, Index]], per_warp: bool) -> None:
    reader, tile = Reader(KERNEL), ir.Shared("tile", "float32", (Number(8), Number(8)), per_warp=per_warp)
    for number, place in enumerate(places):
        first = place[0]
        right = all(
            place == other or (isinstance(first, Number) and isinstance(other[0], Number) and first != other[0])
            for other in places[:number]
        )
        assert reader.is_own(ir.InShared(tile, place)) == (per_warp and right)
