"""Floating point by definition: values as fractions, rounded in any direction. The reference for intrinsics and PTX."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

Value = Fraction | float
"""Exact; a float for infinities, NaN and minus zero."""


@dataclass(frozen=True)
class Format:
    """A binary format of `bits` with `mantissa` stored bits."""

    bits: int
    mantissa: int
    finite: bool = False
    """As e4m3: no infinity, and only all ones is NaN."""

    @property
    def exponent(self) -> int:
        return self.bits - 1 - self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def nan(self) -> int:
        return self.sign - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def most(self) -> int:
        """The largest finite number's bits."""
        return self.nan - 1 if self.finite else self.infinity - 1

    def decode(self, bits: int) -> Value:
        magnitude, sign = bits & (self.sign - 1), -1 if bits & self.sign else 1
        if (magnitude == self.nan) if self.finite else (magnitude > self.infinity):
            return math.nan
        if not self.finite and magnitude == self.infinity:
            return sign * math.inf
        if magnitude == 0:
            return Fraction(0) if sign > 0 else -0.0
        exponent, fraction = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
        if exponent:
            fraction |= 1 << self.mantissa
        return sign * Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - self.bias - self.mantissa)

    def encode(self, value: Value, how: str = "rn") -> int:
        """Bits of a value rounded to nearest (`rn`), towards zero, down or up (`rz`, `rd`, `ru`)."""
        if isinstance(value, float):
            if math.isnan(value):
                return self.nan
            if math.isinf(value):
                return (self.nan if self.finite else self.infinity) | (self.sign if value < 0 else 0)
            return self.sign if math.copysign(1, value) < 0 else 0
        negative = value < 0
        away = {"ru": not negative, "rd": negative}.get(how, False)
        return self._magnitude(abs(value), how, away) | (self.sign if negative else 0)

    def _magnitude(self, value: Fraction, how: str, away: bool) -> int:
        if value == 0:
            return 0
        exponent = value.numerator.bit_length() - value.denominator.bit_length()
        if Fraction(2) ** exponent > value:
            exponent -= 1
        exponent = max(exponent, 1 - self.bias)
        scaled = value / Fraction(2) ** (exponent - self.mantissa)
        whole, rest = divmod(scaled.numerator, scaled.denominator)
        remainder = Fraction(rest, scaled.denominator)
        half = Fraction(1, 2)
        if (away and remainder) or (how == "rn" and (remainder > half or (remainder == half and whole & 1))):
            whole += 1
        bits = whole + ((exponent + self.bias - 1) << self.mantissa)
        if bits <= self.most:
            return bits
        return self.nan if self.finite else self.infinity if how == "rn" or away else self.most


F16, BF16, F32, F64 = Format(16, 10), Format(16, 7), Format(32, 23), Format(64, 52)
E4M3, E5M2 = Format(8, 3, finite=True), Format(8, 2)


def _special(*values: Value) -> bool:
    return any(isinstance(value, float) for value in values)


def add(a: Value, b: Value, how: str = "rn") -> Value:
    """a + b; a zero from opposite numbers is negative when rounded down."""
    if _special(a, b) and (not_finite(a) or not_finite(b) or (a == 0 and b == 0)):
        return from_float(float(a) + float(b) if not (a == 0 and b == 0) else _zero_sum(a, b, how))
    total = Fraction(a) + Fraction(b)
    return -0.0 if total == 0 and how == "rd" and a != 0 else total


def _zero_sum(a: Value, b: Value, how: str) -> float:
    negative = [math.copysign(1, a) < 0 for a in (a, b)]
    return -0.0 if all(negative) or (any(negative) and how == "rd") else 0.0


def not_finite(a: Value) -> bool:
    return isinstance(a, float) and not math.isfinite(a)


def from_float(a: float) -> Value:
    return a if not math.isfinite(a) or (a == 0 and math.copysign(1, a) < 0) else Fraction(a)


def sign(a: Value) -> int:
    return -1 if math.copysign(1, a) < 0 else 1


def mul(a: Value, b: Value) -> Value:
    if not_finite(a) or not_finite(b):
        if any(isinstance(v, float) and math.isnan(v) for v in (a, b)) or a == 0 or b == 0:
            return math.nan
        return sign(a) * sign(b) * math.inf
    product = Fraction(a) * Fraction(b)
    return -0.0 if product == 0 and sign(a) != sign(b) else product


def neg(a: Value) -> Value:
    return -a if isinstance(a, float) or a != 0 else -0.0


def div(a: Value, b: Value) -> Value:
    if (
        any(isinstance(v, float) and math.isnan(v) for v in (a, b))
        or (a == 0 and b == 0)
        or (not_finite(a) and not_finite(b))
    ):
        return math.nan
    if not_finite(a) or b == 0:
        return sign(a) * sign(b) * math.inf
    quotient = Fraction(0) if not_finite(b) else Fraction(a) / Fraction(b)
    return -0.0 if quotient == 0 and sign(a) != sign(b) else quotient
