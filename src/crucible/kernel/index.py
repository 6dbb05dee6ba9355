"""Index expressions: integers that say where something lies. They fold on construction, and know their range."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias


def remembered_hash(expression: object) -> int:
    """Of frozen expressions: else every look-up walks all of it."""
    known = expression.__dict__
    try:
        return known["hash"]  # type: ignore[no-any-return]
    except KeyError:
        found = known["hash"] = hash(tuple(known.values()))
        return found


class Index:
    """An integer of a thread. Operators fold what is known: nothing is divided or multiplied by 1, nothing is added
    to 0, and what is left of a division by 1 is 0."""

    def __add__(self, other: Index | int) -> Index:
        return _added(self, lift(other))

    def __radd__(self, other: int) -> Index:
        return _added(lift(other), self)

    def __sub__(self, other: Index | int) -> Index:
        other = lift(other)
        return self if value_of(other) == 0 else _known("-", self, other)

    def __mul__(self, other: Index | int) -> Index:
        return _multiplied(self, lift(other))

    def __rmul__(self, other: int) -> Index:
        return _multiplied(lift(other), self)

    def __floordiv__(self, other: Index | int) -> Index:
        other = lift(other)
        return self if value_of(other) == 1 else _known("/", self, other)

    def __mod__(self, other: Index | int) -> Index:
        other = lift(other)
        return ZERO if value_of(other) == 1 else _known("%", self, other)

    def __xor__(self, other: Index | int) -> Index:
        other = lift(other)
        return self if value_of(other) == 0 else _known("^", self, other)


@dataclass(frozen=True)
class Number(Index):
    """A number that needs no name."""

    value: int


@dataclass(frozen=True)
class Size(Index):
    """A number that text names."""

    name: str
    value: int
    note: str = field(default="", compare=False)
    """What is said of it where it is declared."""
    counts: bool = field(default=False, compare=False)
    """Whether it counts threads or what one of them takes: those are of type int, all others of the kernel's own."""


WORD_NUMBERS = 16
"""Of four bits."""


@dataclass(frozen=True)
class Table:
    """Numbers that text names, one of which is looked up."""

    name: str
    values: tuple[int, ...]
    note: str = field(default="", compare=False)
    in_word: bool = False
    """Whether one number of 64 bits has them all, four bits each: nvcc 13.0 keeps tables in memory."""

    def __post_init__(self) -> None:
        if self.in_word and (len(self.values) > WORD_NUMBERS or not all(0 <= each < 16 for each in self.values)):
            raise ValueError(f"{self.name}: {self.values} are not at most {WORD_NUMBERS} numbers of four bits")

    def __getitem__(self, at: Index) -> Index:
        return Listed(self, at)


@dataclass(frozen=True)
class Grid(Index):
    """How many blocks there are, as the launch says and the compiler does not know."""

    blocks: int


@dataclass(frozen=True)
class Place(Index):
    """Which thread of its block, or which block of the grid, this is."""

    of: Literal["thread", "block"]
    count: int
    """How many there are."""


@dataclass(frozen=True, eq=False)
class Variable(Index):
    """What a `Let` or a `For` sets."""

    name: str
    """Which it asks for."""
    type: Literal["index", "unsigned", "int", "bool"] = "index"


@dataclass(frozen=True)
class Binary(Index):
    """Of numbers that are not negative, except that a difference may be on the way to one."""

    __hash__ = remembered_hash

    sign: Sign
    left: Index
    right: Index


@dataclass(frozen=True)
class Smaller(Index):
    """The smaller of two."""

    __hash__ = remembered_hash

    left: Index
    right: Index


@dataclass(frozen=True)
class Larger(Index):
    """The larger of two."""

    __hash__ = remembered_hash

    left: Index
    right: Index


@dataclass(frozen=True)
class Either(Index):
    """`one` where the condition holds, else `other`."""

    __hash__ = remembered_hash

    condition: Condition
    one: Index
    other: Index
    is_larger: bool = False
    """Whether that is the larger of them, as text then says: nvcc 13.0 makes other code of it."""


@dataclass(frozen=True)
class Listed(Index):
    """The number at a place in a table."""

    __hash__ = remembered_hash

    table: Table
    at: Index


@dataclass(frozen=True)
class Part(Index):
    """Which part of the work a block has. A table says with which block each part begins, and how many blocks there
    are."""

    begins: Table

    @property
    def block(self) -> Index:
        return Place("block", self.begins.values[-1])

    def of(self, block: int) -> int:
        return bisect.bisect_right(self.begins.values, block) - 1


@dataclass(frozen=True)
class Holds(Index):
    """1 where a condition holds, 0 elsewhere: what a `Let` keeps of one, or is known while both are looked at."""

    __hash__ = remembered_hash

    condition: Condition


@dataclass(frozen=True)
class Known(Index):
    """One of which nothing is known but where it lies."""

    range: Range


@dataclass(frozen=True)
class Compare:
    """A condition."""

    __hash__ = remembered_hash

    sign: Literal["<", ">=", "==", "!=", "in"]
    """`in`: the left one is from 0 up to before the right one."""
    left: Index
    right: Index
    unless: Condition = ()
    """Where this holds it is not asked: of loads alone, some of which need no asking."""


Condition: TypeAlias = tuple[Compare, ...]
"""All of them, each where those before hold; () always holds."""
Sign: TypeAlias = Literal["+", "-", "*", "/", "%", "^"]
ZERO, ONE = Number(0), Number(1)
_OF_VALUE = (Number, Size)
"""A tuple: a union of types is made anew at each question, and takes isinstance four times as long."""


def lift(value: Index | int) -> Index:
    return Number(value) if isinstance(value, int) else value


def value_of(index: Index) -> int | None:
    """Where it is the same everywhere and needs no computing."""
    return index.value if isinstance(index, _OF_VALUE) else None


def terms(index: Index, times: int = 1) -> list[Index]:
    """What adds up to so many times the index."""
    if isinstance(index, Number):
        return [Number(index.value * times)] if index.value * times else []
    if isinstance(index, Binary) and index.sign == "+":
        return [*terms(index.left, times), *terms(index.right, times)]
    if isinstance(index, Binary) and index.sign == "*" and isinstance(index.right, Number):
        return terms(index.left, index.right.value * times)
    return [index * times]


def clipped(index: Index, less: int) -> Index:
    """So much less, but not less than 0; it is known to be one or the other."""
    if isinstance(index, Number) or not less:
        return Number(max(0, index.value - less)) if isinstance(index, Number) else index
    return Either((Compare(">=", index, Number(less)),), index - less, ZERO, is_larger=True)


def quotient(index: Index, by: int) -> Index:
    """What whole multiples are multiples of: each term of a sum by itself."""
    if isinstance(index, Binary) and index.sign == "+":
        return quotient(index.left, by) + quotient(index.right, by)
    factor = value_of(index.right) if isinstance(index, Binary) and index.sign == "*" else None
    if isinstance(index, Binary) and factor is not None and factor % by == 0:
        return index.left * (factor // by)
    return index // by


def apart(index: Index, variable: Variable) -> tuple[Index, int]:
    """A sum without a variable, and how many times that is in it. Raises ValueError where it is otherwise in it."""
    if variable not in variables(index):
        return index, 0
    if isinstance(index, Binary) and index.sign == "+":
        (left, times), (right, more) = apart(index.left, variable), apart(index.right, variable)
        return left + right, times + more
    of, factor = (index.left, value_of(index.right)) if isinstance(index, Binary) and index.sign == "*" else (index, 1)
    if of is not variable or factor is None:
        raise ValueError(f"{index} is no multiple of {variable.name}")
    return ZERO, factor


def constant(index: Index) -> int:
    """Of sizes and numbers. Raises ValueError for what differs between threads or rounds."""
    value = value_of(index)
    if value is not None:
        return value
    found = reach(index, {}, {})
    if found.low != found.high:
        raise ValueError(f"{index} is no constant: it may be {found.low} to {found.high}")
    return found.low


def variables(index: Index) -> set[Index]:
    """The variables and places that it depends on."""
    if isinstance(index, Variable | Place | Part):
        return {index}
    if isinstance(index, Binary | Smaller | Larger):
        return variables(index.left) | variables(index.right)
    return variables(index.at) if isinstance(index, Listed) else set()


def _known(sign: Sign, left: Index, right: Index) -> Index:
    if isinstance(left, Number) and isinstance(right, Number):
        return Number(SIGNS[sign](left.value, right.value))
    return ZERO if value_of(left) == 0 and sign in "*/%" else Binary(sign, left, right)


def _added(left: Index, right: Index) -> Index:
    if value_of(right) == 0:
        return left
    return right if value_of(left) == 0 else _known("+", left, right)


def _multiplied(left: Index, right: Index) -> Index:
    if value_of(right) == 1:
        return left
    if value_of(left) == 1:
        return right
    return ZERO if 0 in (value_of(left), value_of(right)) else _known("*", left, right)


OPPOSITE: dict[str, Literal["<", ">=", "==", "!="]] = {"<": ">=", ">=": "<", "==": "!=", "!=": "=="}
SIGNS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "^": lambda a, b: a ^ b,
}


# where values lie


@dataclass(frozen=True, init=False)
class Range:
    """Numbers from low to high, `step` apart; of one number the step is 0."""

    low: int
    high: int
    step: int

    def __init__(self, low: int, high: int, step: int = 1) -> None:
        """A verifier makes a million: what is frozen is set at once."""
        if low >= high:
            step = 0
        elif step:
            high = low + (high - low) // step * step
        self.__dict__.update(low=low, high=high, step=step)

    @property
    def is_empty(self) -> bool:
        return self.low > self.high

    def below(self, limit: int) -> Range:
        """Those that are smaller."""
        return Range(self.low, min(self.high, limit - 1), self.step)

    def from_(self, limit: int) -> Range:
        """Those that are not."""
        step = self.step or 1
        return Range(self.low + max(0, -(-(limit - self.low) // step)) * step, self.high, self.step)

    def times(self, factor: int) -> Range:
        ends = sorted((self.low * factor, self.high * factor))
        return Range(ends[0], ends[1], self.step * abs(factor))

    def plus(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high, math.gcd(self.step, other.step))

    def divided(self, by: int) -> Range:
        whole = self.step % by == 0 and self.low % by == 0
        return Range(self.low // by, self.high // by, self.step // by if whole else 1)

    def rest(self, by: int) -> Range:
        """What a division leaves."""
        if self.low // by == self.high // by:
            return Range(self.low % by, self.high % by, self.step)
        step = math.gcd(self.step, by)
        return Range(self.low % step, by - step + self.low % step, step)

    def least(self, other: Range) -> Range:
        return Range(min(self.low, other.low), min(self.high, other.high), self._apart(other))

    def most(self, other: Range) -> Range:
        return self.times(-1).least(other.times(-1)).times(-1)

    def either(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high), self._apart(other))

    def _apart(self, other: Range) -> int:
        """The step between values of both."""
        return math.gcd(self.step, other.step, abs(self.low - other.low)) or 1


Ranges: TypeAlias = Mapping[Index, Range]
"""Of variables and places: what loops and guards say."""
Definitions: TypeAlias = Mapping[Index, Index]
"""Of variables that a `Let` set."""


class Surroundings:
    """What is known at some place of a kernel, and what followed from it so far: nobody is asked the same twice. It
    never changes: where more is known, there are others."""

    def __init__(self, ranges: Ranges, definitions: Definitions, smaller: Sequence[tuple[Index, Index]] = ()) -> None:
        self.ranges, self.definitions, self.smaller = ranges, definitions, smaller
        self._sums: dict[Index, Mapping[Index, int]] = {}
        self._ranges: dict[Index, Range] = {}
        self._others: dict[Hashable, Surroundings] = {}
        """By what more is known there."""
        self.asked: dict[Index, Condition | None] = {}
        """Of an index the first condition that it depends on and of which nothing is known, as a reader finds it."""
        self.found: dict[Hashable, Any] = {}
        """What else a reader found by nothing but what is known here."""

    def within(self, ranges: Ranges) -> Surroundings:
        """Where things lie in these ranges as well."""
        if not ranges:
            return self
        key = tuple(ranges.items())
        if key not in self._others:
            self._others[key] = self._with(ranges, {**self.ranges, **ranges}, self.definitions)
        return self._others[key]

    def where(self, smaller: Sequence[tuple[Index, Index]]) -> Surroundings:
        """Where these are less than those as well. Nothing else follows from it here."""
        if not smaller:
            return self
        key = tuple(smaller)
        if key not in self._others:
            found = Surroundings(self.ranges, self.definitions, (*self.smaller, *smaller))
            found._sums, found._ranges, found.asked = self._sums, self._ranges, self.asked
            self._others[key] = found
        return self._others[key]

    def defined(self, variable: Index, index: Index) -> Surroundings:
        """Where a variable is set; what a condition says of its index, it says of the variable. A loop's second round
        gets what its first one did."""
        key = (variable, index)
        if key not in self._others:
            ranges = {each: range_ for each, range_ in self.ranges.items() if each is not variable}
            if isinstance(index, Binary) and index in ranges:
                ranges[variable] = ranges[index]
            is_known = self.definitions.get(variable) is index and ranges == self.ranges
            definitions = {**self.definitions, variable: index}
            self._others[key] = self if is_known else self._with((variable,), ranges, definitions)
        return self._others[key]

    def _with(self, changed: Iterable[Index], ranges: Ranges, definitions: Definitions) -> Surroundings:
        """What followed from less stays where only variables came that nobody knew, or asked for."""
        found = Surroundings(ranges, definitions, self.smaller)
        known = (self.ranges, self.definitions, self._sums)
        if all(isinstance(each, Variable) and not any(each in of for of in known) for each in changed):
            found._sums, found._ranges = self._sums.copy(), self._ranges.copy()
        return found

    def reach(self, index: Index) -> Range:
        """Where it lies. Sums are taken apart and put together by what they depend on, so that what cancels is gone."""
        known = self._ranges
        found = known.get(index)
        if found is None:
            low = high = step = 0
            for atom, factor in self.linear(index).items():
                of = known.get(atom)
                if of is None:
                    of = known[atom] = _atom(atom, self)
                ends = (of.low, of.high) if factor > 0 else (of.high, of.low)
                low, high = low + ends[0] * factor, high + ends[1] * factor
                step = math.gcd(step, of.step * factor)
            found = known[index] = Range(low, high, step)
        return found

    def linear(self, index: Index) -> Mapping[Index, int]:
        """Factors of what is not taken apart further; the constant is that of ONE."""
        found = self._sums.get(index)
        if found is None:
            found = self._sums[index] = _linear(index, self)
        return found


def reach(index: Index, ranges: Ranges, definitions: Definitions) -> Range:
    """Where it lies. Raises ValueError where nothing is known of it."""
    return Surroundings(ranges, definitions).reach(index)


def narrowed(condition: Condition, here: Surroundings) -> dict[Index, Range]:
    """Where things lie if it holds."""
    found: dict[Index, Range] = {}
    for each in (one for one in condition if not one.unless):
        there = here.within(found)
        found[each.left] = met(each, there.reach(each.left), there.reach(each.right))
    return found


def met(each: Compare, left: Range, right: Range) -> Range:
    """Where its left side lies if it holds."""
    below = {"<": right.high, "in": right.high, "==": right.high + 1}
    from_ = {">=": right.low, "in": 0, "==": right.low}
    left = left.below(below[each.sign]) if each.sign in below else left
    return left.from_(from_[each.sign]) if each.sign in from_ else left


def ways(condition: Condition) -> list[Condition]:
    """All ways in which it may hold, each without anything that is not asked."""
    found: list[Condition] = [()]
    for each in condition:
        own = [(replace(each, unless=()),), *([each.unless] if each.unless else [])]
        found = [(*before, *way) for before in found for way in own]
    return found


def opposite(condition: Condition) -> Condition:
    """Where it does not hold; nothing is known where that may be for several reasons."""
    if len(condition) != 1 or condition[0].sign not in OPPOSITE:
        return ()
    return (replace(condition[0], sign=OPPOSITE[condition[0].sign]),)


def _linear(index: Index, here: Surroundings) -> Mapping[Index, int]:
    if isinstance(index, _OF_VALUE):
        return {ONE: index.value}
    if index in here.definitions and index not in here.ranges:
        return here.linear(here.definitions[index])
    if isinstance(index, Either) and Holds(index.condition) in here.ranges:
        holds = here.ranges[Holds(index.condition)].low
        return here.linear(index.one if holds else index.other)
    if not isinstance(index, Binary) or index.sign in "/%^":
        return {index: 1}
    left, right = here.linear(index.left), here.linear(index.right)
    if index.sign == "*":
        scaled, by = (left, right) if right.keys() <= {ONE} else (right, left)
        if not by.keys() <= {ONE}:
            return {index: 1}
        return {atom: each * by.get(ONE, 0) for atom, each in scaled.items()}
    sign = 1 if index.sign == "+" else -1
    both = dict(left)
    for atom, factor in right.items():
        both[atom] = both.get(atom, 0) + sign * factor
    return {atom: factor for atom, factor in both.items() if factor}


def _atom(index: Index, here: Surroundings) -> Range:
    if index is ONE:
        return Range(1, 1)
    if index in here.ranges:
        return here.ranges[index]
    if isinstance(index, Place):
        return Range(0, index.count - 1)
    if isinstance(index, Known):
        return index.range
    if isinstance(index, Grid):
        return Range(index.blocks, index.blocks)
    if isinstance(index, Holds):
        return Range(0, 1)
    if isinstance(index, Listed):
        at = here.reach(index.at)
        found = sorted(set(index.table.values[max(0, at.low) : at.high + 1] or index.table.values))
        return Range(found[0], found[-1], math.gcd(*(each - found[0] for each in found)) or 1)
    if isinstance(index, Part):
        block = here.reach(index.block)
        return Range(index.of(block.low), index.of(block.high))
    if isinstance(index, Either):
        one = here.within(narrowed(index.condition, here)).reach(index.one)
        return one.either(here.reach(index.other))
    if isinstance(index, Smaller | Larger):
        left, right = here.reach(index.left), here.reach(index.right)
        return left.least(right) if isinstance(index, Smaller) else left.most(right)
    if isinstance(index, Binary):
        left, right = here.reach(index.left), here.reach(index.right)
        if index.sign == "*":
            ends = [one * other for one in (left.low, left.high) for other in (right.low, right.high)]
            return Range(min(ends), max(ends))
        if index.sign == "^" and min(left.low, right.low) >= 0:
            return Range(0, (1 << max(left.high, right.high).bit_length()) - 1)
        if right.low == right.high > 0 and left.low >= 0:
            return left.divided(right.low) if index.sign == "/" else left.rest(right.low)
        if index.sign in "/%" and right.low > 0 and left.low >= 0:  # by one of several numbers
            quotients = Range(left.low // right.high, left.high // right.low)
            return quotients if index.sign == "/" else Range(0, min(left.high, right.high - 1))
    raise ValueError(f"nothing is known of {index}: a variable that no Let and no For sets, or a negative dividend")
