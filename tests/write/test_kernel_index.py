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
    Compare,
    Either,
    Holds,
    Index,
    Known,
    Larger,
    Number,
    Place,
    Range,
    Size,
    Smaller,
    Surroundings,
    Table,
    Variable,
    apart,
    clipped,
    constant,
    lift,
    narrowed,
    reach,
    ways,
)
from crucible.kernel.whereabouts import SIGNS_OF

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
    assert Range(-2, 40, 4).from_(0) == Range(2, 38, 4)


def test_one_of_two_numbers_is_as_far_apart_as_they_are() -> None:
    assert reach(Either((), Number(14), ZERO), {}, {}) == Range(0, 14, 14)
    assert reach(Either((), Number(6), J * 4), {J: Range(0, 3)}, {}) == Range(0, 12, 2)


def test_a_condition_narrows_what_comes_after_it() -> None:
    """`past % 2` is asked for where past is known not to be negative."""
    past = Variable("past", "int")
    condition = (Compare(">=", past, ZERO), Compare("<", past, Number(9)), Compare("==", past % 2, ZERO))
    found = narrowed(condition, Surroundings({past: Range(-3, 20)}, {}))
    assert found[past] == Range(0, 8) and found[past % 2] == Range(0, 0)
    with pytest.raises(ValueError, match="a negative dividend"):
        narrowed(condition[2:], Surroundings({past: Range(-3, 20)}, {}))


def test_what_is_less_than_something_is_known_further_in() -> None:
    of, pair = Variable("of"), (J, THREAD)
    here = Surroundings({J: Range(0, 5)}, {})
    there = here.where([pair])
    assert here.smaller == () and there.smaller == (pair,) and here.where([pair]) is there
    assert there.within({THREAD: Range(0, 1)}).smaller == there.defined(of, J).smaller == (pair,)
    assert here.where([(THREAD, J)]).smaller == ((THREAD, J),)
    assert there.where([(THREAD, J)]).smaller == (pair, (THREAD, J))


def test_where_a_condition_holds_one_is_narrowed() -> None:
    """The last cell goes to the end of the input, the others to the next one."""
    cell = Variable("cell", "int")
    end = Either((Compare("<", cell, Number(3)),), cell * 4 + 4, Number(14))
    assert reach(end, {cell: Range(0, 3)}, {}) == Range(4, 14, 2)
    assert reach(Known(Range(-1, 8)), {}, {}) == Range(-1, 8)


def test_what_followed_from_less_is_asked_again_where_more_is_known() -> None:
    """Of variables that nobody knew before, too, if anything asked for them."""
    row, of = Variable("row"), Variable("of")
    end = Either((Compare("<", J, Number(3)),), J + row, row)
    here = Surroundings({J: Range(0, 5), row: Range(0, 9)}, {})
    assert here.reach(end) == Range(0, 11) and here.reach(J + row) == Range(0, 14)
    assert here.within({row: Range(4, 4)}).reach(end) == Range(4, 6)
    assert here.within({J: Range(1, 1)}).reach(J + row) == Range(1, 10)
    assert here.linear(of + row) == {of: 1, row: 1}
    there = here.defined(of, J * 2 + row)
    assert there.linear(of + row) == {J: 2, row: 2} and there.reach(of - row) == Range(0, 10, 2)
    assert there.defined(of, row).reach(of - row) == here.defined(of, row).reach(of - row) == Range(0, 0)
    assert there is here.defined(of, J * 2 + row)  # as in a loop's second round
    with pytest.raises(ValueError, match="no Let and no For sets"):  # it was set in there alone
        here.reach(of)
    assert there.within({Holds(end.condition): Range(1, 1)}).reach(end - J) == Range(0, 9)
    assert there.within({J * 2 + row: Range(7, 7)}).defined(of, J * 2 + row).reach(of) == Range(7, 7)


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
        st.tuples(inner, inner).map(lambda pair: Larger(*pair)),
    ),
    max_leaves=6,
)


def value(index: Index, at: dict[Index, int]) -> int:
    if isinstance(index, Binary):
        return int(SIGNS_OF[index.sign](value(index.left, at), value(index.right, at)))
    if isinstance(index, Smaller):
        return min(value(index.left, at), value(index.right, at))
    if isinstance(index, Larger):
        return max(value(index.left, at), value(index.right, at))
    return at[index] if index in at else constant(index)


@given(indices, st.integers(0, 20))
@settings(max_examples=100, deadline=None)
def test_what_is_clipped_is_the_larger_of_two(index: Index, less: int) -> None:
    """As text says, of which the condition says the same; and it is known to be one of these."""
    made = clipped(index, less)
    found = reach(made, {J: TILES}, {})
    for thread, block, j in itertools.product(range(8), range(3), range(4, 29, 12)):
        at: dict[Index, int] = {THREAD: thread, BLOCK: block, J: j}
        right = max(0, value(index, at) - less)
        assert found.low <= right <= found.high
        if isinstance(made, Either):
            holds = value(index, at) >= less
            assert made.condition == (Compare(">=", index, Number(less)),) and made.is_larger
            assert value(made.one if holds else made.other, at) == right == max(value(made.one, at), 0)
        else:
            assert value(made, at) == right


@given(indices)
@settings(max_examples=150, deadline=None)
def test_a_range_holds_every_value(index: Index) -> None:
    found = reach(index, {J: TILES}, {})
    for thread, block, j in itertools.product(range(8), range(3), range(4, 29, 12)):
        each = value(index, {THREAD: thread, BLOCK: block, J: j})
        assert found.low <= each <= found.high
        assert each == found.low or (each - found.low) % found.step == 0


@pytest.mark.parametrize("sign", ["/", "%"])
@given(st.tuples(st.integers(0, 40), st.integers(0, 40)), st.tuples(st.integers(1, 9), st.integers(1, 9)))
@settings(max_examples=100, deadline=None)
def test_a_range_holds_what_is_divided_by_several_numbers(
    sign: str, given_: tuple[int, int], by: tuple[int, int]
) -> None:
    i, n = Variable("i", "int"), Variable("n", "int")
    ranges: dict[Index, Range] = {i: Range(*sorted(given_)), n: Range(*sorted(by))}
    found = reach(i // n if sign == "/" else i % n, ranges, {})
    for value_, divisor in itertools.product(range(min(given_), max(given_) + 1), range(min(by), max(by) + 1)):
        assert found.low <= (value_ // divisor if sign == "/" else value_ % divisor) <= found.high


@given(indices, st.integers(1, 9), st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_rounds_move_on_is_a_multiple_of_their_number(index: Index, by: int, is_first: bool) -> None:
    """A sum is its begin and so many times the variable; where it is not, nobody says that it is."""
    whole = J * by + index if is_first else index + J * by
    try:
        rest, times = apart(whole, J)
    except ValueError:
        return
    for thread, block, j in itertools.product(range(8), range(3), range(4, 29, 12)):
        at: dict[Index, int] = {THREAD: thread, BLOCK: block}
        assert value(rest, at) + times * j == value(whole, {**at, J: j})


def test_what_is_not_asked_everywhere_holds_in_either_way() -> None:
    guard = (Compare("<", THREAD, Number(6)), Compare("in", J - 8, Number(10), (Compare(">=", THREAD, Number(3)),)))
    assert [[each.unless for each in way] for way in ways(guard)] == [[(), ()], [(), ()]]
    for thread, j in itertools.product(range(8), range(4, 29, 12)):
        right = thread < 6 and (0 <= j - 8 < 10 or thread >= 3)
        held = [all(_holds(each, {THREAD: thread, J: j}) for each in way) for way in ways(guard)]
        assert any(held) == right
    assert narrowed(guard, Surroundings({J: TILES}, {})).keys() == {THREAD}


def _holds(each: Compare, at: dict[Index, int]) -> bool:
    left, right = value(each.left, at), value(each.right, at)
    return {"<": left < right, ">=": left >= right, "in": 0 <= left < right}[each.sign]


@pytest.mark.parametrize("values", [(0, 16), (-1,), (1,) * 17])
def test_a_word_holds_sixteen_numbers_of_four_bits(values: tuple[int, ...]) -> None:
    Table("held", (15,) * 16, in_word=True)
    with pytest.raises(ValueError, match="are not at most 16 numbers of four bits"):
        Table("held", values, in_word=True)
