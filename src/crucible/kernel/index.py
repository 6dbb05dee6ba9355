"""Index expressions: integers that say where something lies. They fold on construction, and know their range."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias


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


@dataclass(frozen=True)
class Table:
    """Numbers that text names, one of which is looked up."""

    name: str
    values: tuple[int, ...]

    def __getitem__(self, at: Index) -> Index:
        return Listed(self, at)


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

    sign: Sign
    left: Index
    right: Index


@dataclass(frozen=True)
class Smaller(Index):
    """The smaller of two."""

    left: Index
    right: Index


@dataclass(frozen=True)
class Larger(Index):
    """The larger of two."""

    left: Index
    right: Index


@dataclass(frozen=True)
class Either(Index):
    """`one` where the condition holds, else `other`."""

    condition: Condition
    one: Index
    other: Index


@dataclass(frozen=True)
class Listed(Index):
    """The number at a place in a table."""

    table: Table
    at: Index


@dataclass(frozen=True)
class Holds(Index):
    """1 where a condition holds, 0 elsewhere: what a `Let` keeps of one, or is known while both are looked at."""

    condition: Condition


@dataclass(frozen=True)
class Known(Index):
    """One of which nothing is known but where it lies."""

    range: Range


@dataclass(frozen=True)
class Compare:
    """A condition."""

    sign: Literal["<", ">=", "==", "!=", "in"]
    """`in`: the left one is from 0 up to before the right one."""
    left: Index
    right: Index


Condition: TypeAlias = tuple[Compare, ...]
"""All of them, each where those before hold; () always holds."""
Sign: TypeAlias = Literal["+", "-", "*", "/", "%", "^"]
ZERO, ONE = Number(0), Number(1)


def lift(value: Index | int) -> Index:
    return Number(value) if isinstance(value, int) else value


def value_of(index: Index) -> int | None:
    """Where it is the same everywhere and needs no computing."""
    return index.value if isinstance(index, Number | Size) else None


def terms(index: Index, times: int = 1) -> list[Index]:
    """What adds up to so many times the index."""
    if isinstance(index, Number):
        return [Number(index.value * times)] if index.value * times else []
    if isinstance(index, Binary) and index.sign == "+":
        return [*terms(index.left, times), *terms(index.right, times)]
    if isinstance(index, Binary) and index.sign == "*" and isinstance(index.right, Number):
        return terms(index.left, index.right.value * times)
    return [index * times]


def quotient(index: Index, by: int) -> Index:
    """What whole multiples are multiples of: each term of a sum by itself."""
    if isinstance(index, Binary) and index.sign == "+":
        return quotient(index.left, by) + quotient(index.right, by)
    factor = value_of(index.right) if isinstance(index, Binary) and index.sign == "*" else None
    if isinstance(index, Binary) and factor is not None and factor % by == 0:
        return index.left * (factor // by)
    return index // by


def constant(index: Index) -> int:
    """Of sizes and numbers. Raises ValueError for what differs between threads or rounds."""
    found = reach(index, {}, {})
    if found.low != found.high:
        raise ValueError(f"{index} is no constant: it may be {found.low} to {found.high}")
    return found.low


def variables(index: Index) -> set[Index]:
    """The variables and places that it depends on."""
    if isinstance(index, Variable | Place):
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


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, `step` apart; of one number the step is 0."""

    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        step = 0 if self.low >= self.high else self.step
        object.__setattr__(self, "step", step)
        if step:
            object.__setattr__(self, "high", self.low + (self.high - self.low) // step * step)

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


def reach(index: Index, ranges: Ranges, definitions: Definitions) -> Range:
    """Where it lies. Sums are taken apart and put together by what they depend on, so that what cancels is gone."""
    terms, found = linear(index, ranges, definitions), Range(0, 0)
    for atom, factor in terms.items():
        found = found.plus(_atom(atom, ranges, definitions).times(factor))
    return found


def narrowed(condition: Condition, ranges: Ranges, definitions: Definitions) -> dict[Index, Range]:
    """Where things lie if it holds."""
    found: dict[Index, Range] = {}
    for each in condition:
        left, right = (reach(side, {**ranges, **found}, definitions) for side in (each.left, each.right))
        found[each.left] = met(each, left, right)
    return found


def met(each: Compare, left: Range, right: Range) -> Range:
    """Where its left side lies if it holds."""
    below = {"<": right.high, "in": right.high, "==": right.high + 1}
    from_ = {">=": right.low, "in": 0, "==": right.low}
    left = left.below(below[each.sign]) if each.sign in below else left
    return left.from_(from_[each.sign]) if each.sign in from_ else left


def opposite(condition: Condition) -> Condition:
    """Where it does not hold; nothing is known where that may be for several reasons."""
    if len(condition) != 1 or condition[0].sign not in OPPOSITE:
        return ()
    return (replace(condition[0], sign=OPPOSITE[condition[0].sign]),)


def linear(index: Index, ranges: Ranges, definitions: Definitions) -> dict[Index, int]:
    """Factors of what is not taken apart further; the constant is that of ONE."""
    value = value_of(index)
    if value is not None:
        return {ONE: value}
    if index in definitions and index not in ranges:
        return linear(definitions[index], ranges, definitions)
    if isinstance(index, Either) and Holds(index.condition) in ranges:
        holds = ranges[Holds(index.condition)].low
        return linear(index.one if holds else index.other, ranges, definitions)
    if not isinstance(index, Binary) or index.sign in "/%^":
        return {index: 1}
    left, right = (linear(each, ranges, definitions) for each in (index.left, index.right))
    if index.sign == "*":
        scaled, factor = (left, right) if right.keys() <= {ONE} else (right, left)
        if not factor.keys() <= {ONE}:
            return {index: 1}
        return {atom: each * factor.get(ONE, 0) for atom, each in scaled.items()}
    sign = 1 if index.sign == "+" else -1
    both = {atom: left.get(atom, 0) + sign * right.get(atom, 0) for atom in (*left, *right)}
    return {atom: factor for atom, factor in both.items() if factor}


def _atom(index: Index, ranges: Ranges, definitions: Definitions) -> Range:
    if index == ONE:
        return Range(1, 1)
    if index in ranges:
        return ranges[index]
    if isinstance(index, Place):
        return Range(0, index.count - 1)
    if isinstance(index, Known):
        return index.range
    if isinstance(index, Holds):
        return Range(0, 1)
    if isinstance(index, Listed):
        at = reach(index.at, ranges, definitions)
        found = sorted(set(index.table.values[max(0, at.low) : at.high + 1] or index.table.values))
        return Range(found[0], found[-1], math.gcd(*(each - found[0] for each in found)) or 1)
    if isinstance(index, Either):
        one = reach(index.one, {**ranges, **narrowed(index.condition, ranges, definitions)}, definitions)
        return one.either(reach(index.other, ranges, definitions))
    if isinstance(index, Smaller | Larger):
        left, right = (reach(each, ranges, definitions) for each in (index.left, index.right))
        return left.least(right) if isinstance(index, Smaller) else left.most(right)
    if isinstance(index, Binary):
        left, right = (reach(each, ranges, definitions) for each in (index.left, index.right))
        if index.sign == "*":
            ends = [one * other for one in (left.low, left.high) for other in (right.low, right.high)]
            return Range(min(ends), max(ends))
        if index.sign == "^" and min(left.low, right.low) >= 0:
            return Range(0, (1 << max(left.high, right.high).bit_length()) - 1)
        if right.low == right.high > 0 and left.low >= 0:
            return left.divided(right.low) if index.sign == "/" else left.rest(right.low)
    raise ValueError(f"nothing is known of {index}: a variable that no Let and no For sets, or a negative dividend")
