"""exp by the instruction that raises 2 to a power, where it is known to be right to a tolerance.

exp(x) is 2 to the power of x·log2(e): one multiplication, and one instruction of a pipe of its own, where expf takes
eight and a polynomial on [0, 1] six. The product is rounded, and with it a result is off by x times as much, as part of
it: so this serves arguments of a small interval, which also keeps subnormal results and infinities away. NaN stays NaN.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from crucible.algebra.expression import Expr, inputs, make
from crucible.algebra.interval import single

LOG2_E = single(math.log2(math.e))
UNITS = 2.5
"""In the last place, by which the instruction is off: two from the nearest float32 (`ex2.approx.ftz.f32`, PTX ISA),
which is half a unit off itself. Of 21 million arguments on an H200 2.055 were the most."""
MOST = 60.0
"""The largest size of an argument: no result of it is subnormal or infinite."""
_CELLS = 64
_ARGUMENT_ERROR = 2.0**-24 + abs(float(Fraction(LOG2_E) / Fraction(math.log2(math.e)) - 1)) + 2.0**-48
"""Of x·log2(e), as part of it: the product is rounded once, and so is its factor."""


def by_power_of_two(x: Expr) -> Expr:
    return make("exp2_approx", (x * LOG2_E,))


def by_scaled_power(x: Expr) -> Expr | None:
    """The same, of clamp(p + b) with a b that many elements share: clamp(p·log2(e) + b·log2(e)) between scaled ends is
    one fma for a sum and a product. None of what has another form.

    b·log2(e) is rounded, so a result is that of a b which is off by half a unit; all else is as in `by_power_of_two`.
    """
    if x.kind not in ("clamp", "hardtanh") or x.args[0].kind != "add":
        return None
    low, high = (float(end) for end in x.attributes)
    for varying, shared in (x.args[0].args, x.args[0].args[::-1]):
        if all(leaf.kind == "parameter" for leaf in inputs(shared)) and varying.kind != "mul":
            scaled = varying * LOG2_E + shared * LOG2_E
            return make("exp2_approx", (scaled.clamp(single(low * LOG2_E), single(high * LOG2_E)),))
    return None


def error_of_power(low: float, high: float) -> float:
    """The largest absolute difference between exp and what `by_power_of_two` computes in float32, from above: on small
    cells the instruction's own, in units of the largest value, and what the argument's error makes of that value."""
    if max(-low, high) > MOST:
        return math.inf
    ends = [low + (high - low) * i / _CELLS for i in range(_CELLS)] + [high]
    return max(_error_in_cell(first, last) for first, last in itertools.pairwise(ends))


def _error_in_cell(low: float, high: float) -> float:
    carried = math.expm1(max(abs(low), abs(high)) * _ARGUMENT_ERROR)
    largest = math.exp(high) * (1 + carried) * (1 + 1e-15)
    unit = 2.0 ** (math.frexp(largest)[1] - 24)
    return (UNITS * unit + largest * carried) * (1 + 1e-12) + 2.0**-125  # subnormal arguments count as 0
