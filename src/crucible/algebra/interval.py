"""Interval arithmetic: from where the arguments lie to where the result lies, soundly.

Two precisions. `SINGLE` encloses the exact value and also what float32 arithmetic makes of it: bounds are rounded
outwards to float32, and widened by the error that the CUDA programming guide gives for its functions. `DOUBLE`
encloses the exact value only, as tightly as float64 allows: for proofs. Both trust the C library's float64 functions to
two units in the last place.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

INF = math.inf
LEAST_DIVISOR = 2.0**-100
"""From which on a kernel takes a quotient for the product with an approximate reciprocal: that is neither infinite nor
loses bits, and nothing is tested. A division that is right for all divisors branches, and while a warp is there nothing
else of it goes on: chains of sigmoids behind convolutions took 1.3 to 1.6 times as long (H200)."""
QUOTIENT_ULPS = 3
"""By which such a quotient may be off: the reciprocal by one (PTX ISA; of all divisors from 2^-123 to 2^127 on an H200,
where none of those from 1 on had one above 1), which times a dividend of almost two is almost two of the product's,
whose own rounding is half of one. -1.75 by all divisors near 2^-100: 2.04 at most (H100)."""


@dataclass(frozen=True)
class Interval:
    """The numbers from `low` to `high`, infinities included where they are bounds, and NaN or not.

    low > high: there are no numbers, only NaN.
    """

    low: float
    high: float
    nan: bool = False
    """Whether the value may be NaN too."""

    def __contains__(self, value: float) -> bool:
        return self.nan if math.isnan(value) else self.low <= value <= self.high

    @property
    def empty(self) -> bool:
        """NaN and nothing else."""
        return self.low > self.high

    @property
    def magnitude(self) -> float:
        """The largest absolute value."""
        return 0.0 if self.empty else max(abs(self.low), abs(self.high))

    @property
    def bounded(self) -> bool:
        """Neither infinite nor NaN."""
        return not self.nan and self.magnitude < INF

    @property
    def is_plain_divisor(self) -> bool:
        """Whether kernels multiply by the approximate reciprocal of such a value; one number alone is a constant, by
        which they divide. NaN and infinity may be among the values."""
        return LEAST_DIVISOR <= self.low < self.high

    def hull(self, other: Interval) -> Interval:
        """The smallest interval with both in it."""
        return Interval(min(self.low, other.low), max(self.high, other.high), self.nan or other.nan)

    def meet(self, other: Interval) -> Interval:
        """The numbers that lie in both; NaN only where both allow it."""
        return Interval(max(self.low, other.low), min(self.high, other.high), self.nan and other.nan)


ANY = Interval(-INF, INF, nan=True)
NUMBERS = Interval(-INF, INF)
ONLY_NAN = Interval(INF, -INF, nan=True)
FALSE, TRUE, EITHER = Interval(0.0, 0.0), Interval(1.0, 1.0), Interval(0.0, 1.0)


def single(value: float) -> float:
    """Rounded to the nearest float32, infinity beyond the largest."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(INF, value)


def half(value: float) -> float:
    """Rounded to the nearest float16 (through float32, as PyTorch does), infinity beyond the largest."""
    try:
        return float(struct.unpack("<e", struct.pack("<e", single(value)))[0])
    except OverflowError:
        return math.copysign(INF, value)


def bfloat(value: float) -> float:
    """Rounded to the nearest bfloat16 (through float32, as PyTorch does), infinity beyond the largest."""
    if not math.isfinite(value := single(value)):
        return value
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


ROUND: dict[str, Callable[[float], float]] = {"float32": single, "float16": half, "bfloat16": bfloat}


def _neighbour(value: float, steps: int) -> float:
    """The float32 that lies some steps above (below, if negative) a float32."""
    if not steps or not math.isfinite(value):
        return value
    (bits,) = struct.unpack("<i", struct.pack("<f", value + 0.0))
    ordinal = (bits if bits >= 0 else -(bits & 0x7FFFFFFF)) + steps
    if abs(ordinal) >= 0x7F800000:
        return math.copysign(INF, ordinal)
    return math.copysign(float(struct.unpack("<f", struct.pack("<i", abs(ordinal)))[0]), ordinal)


@dataclass(frozen=True)
class Precision:
    """How results are rounded outwards."""

    single: bool
    """To float32, so that float32 arithmetic's results are enclosed too."""

    def constant(self, value: float) -> Interval:
        """A number as it stands in the chain and, in single precision, as the kernel stores it."""
        if math.isnan(value):
            return ONLY_NAN
        return self.outward(value, value, exact=(True, True))

    def outward(
        self, low: float, high: float, *, exact: tuple[bool, bool] = (False, False), ulps: int = 0, nan: bool = False
    ) -> Interval:
        """From bounds that are right to one float64 unit (or exact, each) to bounds that hold."""
        if low > high:
            return ONLY_NAN
        low, high = low if exact[0] else math.nextafter(low, -INF), high if exact[1] else math.nextafter(high, INF)
        if self.single:
            low = min(low, _neighbour(single(low), -ulps))
            high = max(high, _neighbour(single(high), ulps))
        return Interval(low, high, nan)

    def add(self, a: Interval, b: Interval) -> Interval:
        nan = a.nan or b.nan or (a.high == INF and b.low == -INF) or (a.low == -INF and b.high == INF)
        if a.empty or b.empty:
            return ONLY_NAN
        low, high = a.low + b.low, a.high + b.high
        low, high = (-INF if math.isnan(low) else low), (INF if math.isnan(high) else high)
        exact = self.single and _sum_is(a.low, b.low, low), self.single and _sum_is(a.high, b.high, high)
        return self.outward(low, high, exact=exact, nan=nan)

    def sub(self, a: Interval, b: Interval) -> Interval:
        return self.add(a, negative(b))

    def mul(self, a: Interval, b: Interval) -> Interval:
        if a.empty or b.empty:
            return ONLY_NAN
        nan = a.nan or b.nan or (0 in a and b.magnitude == INF) or (0 in b and a.magnitude == INF)
        corners = [
            (0.0, True) if x == 0 or y == 0 else (x * y, self.single and _product_is(x, y, x * y))
            for x in (a.low, a.high)
            for y in (b.low, b.high)
        ]
        return self._spanned(corners, nan)

    def div(self, a: Interval, b: Interval) -> Interval:
        """As kernels divide: a plain divisor's reciprocal is approximated."""
        found = self.quotient(a, b)
        if found.empty or not self.single or not b.is_plain_divisor:
            return found
        low = found.low and _neighbour(single(found.low), -QUOTIENT_ULPS)  # a quotient that is 0 stays so
        high = found.high and _neighbour(single(found.high), QUOTIENT_ULPS)
        if b.low >= 1:
            low, high = max(low, min(a.low, 0.0)), min(high, max(a.high, 0.0))
        return Interval(low, high, found.nan)

    def quotient(self, a: Interval, b: Interval) -> Interval:
        """Rounded to the nearest."""
        if a.empty or b.empty:
            return ONLY_NAN
        nan = a.nan or b.nan or (0 in a and 0 in b) or (a.magnitude == INF and b.magnitude == INF)
        if 0 in b:  # a zero may have either sign
            return Interval(-INF, INF, nan)
        corners = [
            (0.0, True) if math.isinf(y) else (x / y, self.single and _product_is(x / y, y, x))
            for x in (a.low, a.high)
            for y in (b.low, b.high)
        ]
        return self._spanned(corners, nan)

    def _spanned(self, corners: list[tuple[float, bool]], nan: bool) -> Interval:
        """From the least to the largest of some values, each with whether it is exact."""
        low, high = min(value for value, _ in corners), max(value for value, _ in corners)
        sure = [all(exact for value, exact in corners if value == end) for end in (low, high)]
        return self.outward(low, high, exact=(sure[0], sure[1]), nan=nan)

    def power(self, a: Interval, b: Interval) -> Interval:
        """A base below 0 or an exponent that is not fixed there: anything."""
        if a.empty or b.empty:
            return ANY
        if a.low <= 0 and not (a.low == 0 and b.low > 0):
            return self._whole_power(a, b.low) if b.low == b.high and b.low.is_integer() and b.low > 0 else ANY
        corners = [_pow(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        if any(math.isnan(corner) for corner in corners) or b.magnitude == INF:
            return Interval(0.0, INF, a.nan or b.nan)
        enclosed = self.outward(min(corners), max(corners), ulps=8, nan=a.nan or b.nan)
        return Interval(max(enclosed.low, 0.0), enclosed.high, enclosed.nan)

    def _whole_power(self, a: Interval, exponent: float) -> Interval:
        ends = [_pow(a.low, exponent), _pow(a.high, exponent)]
        if exponent % 2 == 0:
            ends = [0.0, *ends] if 0 in a else ends
        enclosed = self.outward(min(ends), max(ends), ulps=8, nan=a.nan)
        return enclosed if exponent % 2 else Interval(max(enclosed.low, 0.0), enclosed.high, enclosed.nan)

    def rising(self, function: Callable[[float], float], a: Interval, domain: Interval, image: Interval,
               ulps: int) -> Interval:  # fmt: skip
        """A function that never falls, on the part of `a` in its domain; NaN outside."""
        inside = Interval(max(a.low, domain.low), min(a.high, domain.high))
        nan = a.nan or a.low < domain.low or a.high > domain.high
        if inside.empty:
            return ONLY_NAN
        ends = function(inside.low), function(inside.high)
        low, high = math.nextafter(ends[0], -INF), math.nextafter(ends[1], INF)
        enclosed = self.outward(low, high, ulps=ulps, nan=nan)
        return Interval(max(enclosed.low, image.low), min(enclosed.high, image.high), nan)

    def wave(self, function: Callable[[float], float], first_top: float, a: Interval, ulps: int) -> Interval:
        """Sine or cosine, whose tops lie at `first_top` + 2πk."""
        if a.empty:
            return ONLY_NAN
        nan = a.nan or a.magnitude == INF
        if a.magnitude > 1e6 or a.high - a.low > 2 * math.pi:
            return Interval(-1.0, 1.0, nan)
        top, bottom = (_holds_turn(a, turn) for turn in (first_top, first_top + math.pi))
        ends = [function(a.low), function(a.high)]
        low, high = (-1.0 if bottom else min(ends)), (1.0 if top else max(ends))
        enclosed = self.outward(low - 1e-15, high + 1e-15, ulps=ulps)
        return Interval(max(enclosed.low, -1.0), min(enclosed.high, 1.0), nan)


SINGLE, DOUBLE = Precision(single=True), Precision(single=False)


def negative(a: Interval) -> Interval:
    return Interval(-a.high, -a.low, a.nan)


def absolute(a: Interval) -> Interval:
    low = 0.0 if 0 in a else min(abs(a.low), abs(a.high))
    return a if a.empty else Interval(low, a.magnitude, a.nan)


def greatest(a: Interval, b: Interval) -> Interval:
    """Of maximum: NaN if either is."""
    return ONLY_NAN if a.empty or b.empty else Interval(max(a.low, b.low), max(a.high, b.high), a.nan or b.nan)


def least(a: Interval, b: Interval) -> Interval:
    """Of minimum: NaN if either is."""
    return negative(greatest(negative(a), negative(b))) if not (a.empty or b.empty) else ONLY_NAN


def rounded(a: Interval, dtype: str) -> Interval:
    """Of a cast: rounding never turns two values round."""
    low, high = ROUND[dtype](a.low), ROUND[dtype](a.high)
    return a if a.empty else Interval(low, high, a.nan)


def below(a: Interval, b: Interval, *, or_equal: bool) -> Interval:
    """Of a < b, or a <= b: whether it holds always, never or sometimes. It never holds for NaN."""
    if a.empty or b.empty:
        return FALSE
    always = a.high <= b.low if or_equal else a.high < b.low
    never = a.low > b.high if or_equal else a.low >= b.high
    return FALSE if never else TRUE if always and not (a.nan or b.nan) else EITHER


def equal(a: Interval, b: Interval) -> Interval:
    """Of a == b."""
    if a.empty or b.empty or a.low > b.high or b.low > a.high:
        return FALSE
    same = a.low == a.high == b.low == b.high and not (a.nan or b.nan)
    return TRUE if same else EITHER


def opposite(condition: Interval) -> Interval:
    """Of not."""
    return Interval(1.0 - condition.high, 1.0 - condition.low)


def chosen(condition: Interval, one: Interval, other: Interval) -> Interval:
    """Of where."""
    return one if condition == TRUE else other if condition == FALSE else one.hull(other)


def _sum_is(a: float, b: float, total: float) -> bool:
    return (math.isinf(total) and (math.isinf(a) or math.isinf(b))) or (
        math.isfinite(total) and Fraction(a) + Fraction(b) == Fraction(total)
    )


def _product_is(a: float, b: float, product: float) -> bool:
    return math.isinf(a) or math.isinf(b) or (math.isfinite(product) and Fraction(a) * Fraction(b) == Fraction(product))


def _pow(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -INF if base < 0 and exponent % 2 else INF
    except ValueError:
        return math.nan


def _holds_turn(a: Interval, turn: float) -> bool:
    """Whether turn + 2πk lies in the interval, or so close that rounding may say either."""
    first = math.ceil((a.low - turn - 1e-9) / (2 * math.pi))
    return turn + first * 2 * math.pi <= a.high + 1e-9
