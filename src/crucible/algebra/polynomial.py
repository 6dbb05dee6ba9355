"""Short polynomials that stand in for functions on an interval, with a bound of their error that is proven.

The coefficients come from interpolation at Chebyshev's nodes and are rounded to float32. The bound then holds for those
rounded numbers, whatever gave them: the difference of polynomial and function is enclosed on small cells by
its value in the middle, its slope there, and its second derivative over the cell (Taylor's theorem in interval
arithmetic; derivatives by `gradient`). To it comes the rounding of each step of Horner's rule in float32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from crucible.algebra.expression import Expr, constant, make, nodes, tensor
from crucible.algebra.gradient import derivative
from crucible.algebra.interval import DOUBLE, Interval, single
from crucible.algebra.operations import FUNCTIONS, cost, define, lowered
from crucible.algebra.ranges import DEFAULTS, ENCLOSE, interval

_HALF_ULP = 2.0**-24
_X = tensor("x")


@dataclass(frozen=True)
class Form:
    """linear·x + offset + x^power · Q(x^stride): what is known of a function beforehand."""

    linear: float = 0.0
    offset: float = 0.0
    power: int = 0
    stride: int = 1
    smooth: Callable[[Expr], Expr] | None = None
    """A definition without kinks, for the proof, where the operation's own has some."""


_ODD, _EVEN_BESIDE_HALF_X = Form(power=1, stride=2), Form(linear=0.5, power=2, stride=2)
FORMS: dict[str, Form] = {
    "gelu": _EVEN_BESIDE_HALF_X,
    "gelu_tanh": _EVEN_BESIDE_HALF_X,
    "silu": _EVEN_BESIDE_HALF_X,
    "gelu_slope": Form(offset=0.5, power=1, stride=2),
    "gelu_tanh_slope": Form(offset=0.5, power=1, stride=2),
    "silu_slope": Form(offset=0.5, power=1, stride=2),
    "sigmoid": Form(offset=0.5, power=1, stride=2),
    "softplus": Form(0.5, math.log(2), 2, 2, smooth=lambda x: (1 + x.exp()).log()),
    "logsigmoid": Form(0.5, -math.log(2), 2, 2, smooth=lambda x: -(1 + (-x).exp()).log()),
    "tanh": _ODD,
    "erf": _ODD,
    "sin": _ODD,
    "cos": Form(offset=1.0, power=2, stride=2),
    "exp": Form(offset=1.0, power=1),
    "expm1": Form(power=1),
    "log1p": Form(power=1),
    "mish": Form(power=1),
    "mish_slope": Form(),
}
"""The functions that can be approximated; GELU and SiLU are x/2 and an even function, tanh is odd, and so on."""


@dataclass(frozen=True)
class Approximation:
    """A polynomial for a function on an interval."""

    kind: str
    low: float
    high: float
    error: float
    """The largest absolute difference between the function and the polynomial as float32 computes it: proven."""
    form: Form
    coefficients: tuple[float, ...]
    """Of Q, lowest power first; all are float32 numbers."""

    def of(self, argument: Expr) -> Expr:
        """The polynomial of an argument within the interval."""
        numbers = (self.form.linear, self.form.offset, float(self.form.power), float(self.form.stride))
        return make("polynomial", (argument,), self.kind, self.low, self.high, self.error, *numbers, *self.coefficients)


def approximate(kind: str, low: float, high: float, tolerance: float = 3e-7) -> Approximation | None:
    """The shortest polynomial within `tolerance` (times the largest value, if that is above 1) that costs fewer
    instructions than the function; None if there is none."""
    if kind not in FORMS or not (math.isfinite(low) and math.isfinite(high)) or max(-low, high) > 8:
        return None
    if kind == "softplus" and high > DEFAULTS["softplus"][1]:
        return None
    return _shortest(kind, low, high, tolerance)


@cache
def _shortest(kind: str, low: float, high: float, tolerance: float) -> Approximation | None:
    original = make(kind, (_X,), *DEFAULTS.get(kind, ()))
    values = interval(original, {"x": Interval(low, high)})
    # not of what encloses them: of Mish's slope on [-3, 3] that is 250,000, of which 3e-7 are 0.05
    allowed = tolerance * max(1.0, _largest(kind, low, high))
    for count in range(1, cost(original)):
        found = Approximation(kind, low, high, 0.0, FORMS[kind], _interpolated(kind, low, high, count))
        if cost(found.of(_X)) >= cost(original):
            return None
        rounding = _rounding(found, values.magnitude)
        if rounding < allowed and _sampled(found) < allowed - rounding:
            error = (_distance(found, allowed) + rounding) * (1 + 1e-9)
            if error <= allowed:
                return Approximation(kind, low, high, single(error * (1 + 2**-23)), FORMS[kind], found.coefficients)
    return None


def _smooth(kind: str) -> Expr:
    """The function of x, without kinks."""
    if (smooth := FORMS[kind].smooth) is not None:
        return smooth(_X)
    node = make(kind, (_X,))
    return define(node) if kind in FUNCTIONS else node


def _interpolated(kind: str, low: float, high: float, count: int) -> tuple[float, ...]:
    """The coefficients of Q that fit at Chebyshev's nodes (of the square of x, if it is a polynomial in that)."""
    form = FORMS[kind]
    ends = (low, high) if form.stride == 1 else (0.0, max(low * low, high * high))
    middle, radius = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    places = [middle + radius * math.cos(math.pi * (i + 0.5) / count) for i in range(count)]
    return tuple(single(value) for value in _newton(places, [_quotient(kind, form, place) for place in places]))


def _quotient(kind: str, form: Form, place: float) -> float:
    """The value Q should have."""
    x = place if form.stride == 1 else math.sqrt(place)
    if form.power and abs(x) < 1e-6:
        x = 1e-4
    enclosed = interval(_smooth(kind), {"x": Interval(x, x)}, DOUBLE)
    return ((enclosed.low + enclosed.high) / 2 - form.linear * x - form.offset) / x**form.power


def _newton(places: list[float], values: list[float]) -> list[float]:
    """The coefficients of the polynomial through these points, by divided differences."""
    table = list(values)
    for order in range(1, len(places)):
        for i in range(len(places) - 1, order - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (places[i] - places[i - order])
    result = [0.0] * len(places)
    for place, difference in zip(reversed(places), reversed(table), strict=True):
        shifted = [0.0, *result[:-1]]
        result = [up - place * same for up, same in zip(shifted, result, strict=True)]
        result[0] += difference
    return result


def _sampled(found: Approximation) -> float:
    """The error at a few places: what the proof cannot fall below."""
    difference = _Program((define(found.of(_X)) - _smooth(found.kind),))
    places = [found.low + (found.high - found.low) * i / 16 for i in range(17)]
    return max(difference(place, place)[0].magnitude for place in places)


def _largest(kind: str, low: float, high: float) -> float:
    """What the function's largest value is at least."""
    function = _Program((_smooth(kind),))
    places = [low + (high - low) * i / 16 for i in range(17)]
    return max(function(place, place)[0].magnitude for place in places)


def _distance(found: Approximation, allowed: float) -> float:
    """The largest difference of exact values, from above."""
    difference = define(found.of(_X)) - _smooth(found.kind)
    slope = derivative(difference, _X, constant(1.0))
    at_middle, bend = _Program((difference, slope)), _Program((derivative(slope, _X, constant(1.0)),))
    largest, cells = 0.0, _cells(found)
    while cells:
        low, high = cells.pop()
        middle = (low + high) / 2
        radius = math.nextafter(max(high - middle, middle - low), math.inf)
        there, slope_there = at_middle(middle, middle)
        spread = radius * slope_there.magnitude + radius * radius / 2 * bend(low, high)[0].magnitude
        if spread > 0.1 * allowed and radius > 1e-7:
            cells += [(low, middle), (middle, high)]
        else:
            largest = max(largest, there.magnitude + spread)
    return largest * (1 + 1e-12)


def _cells(found: Approximation) -> list[tuple[float, float]]:
    """Where to look first: where polynomial and function have the same symmetry, on one side of 0 alone."""
    low, high = found.low, found.high
    if found.form.stride == 2:
        low, high = (0.0 if low < 0 < high else min(abs(low), abs(high))), max(-low, high)
    ends = [low + (high - low) * i / 64 for i in range(64)] + [high]
    return list(itertools.pairwise(ends))


class _Program:
    """The intervals, in double precision, of expressions of x: many times, so without walking the graph each time."""

    def __init__(self, roots: tuple[Expr, ...]) -> None:
        flat = [lowered(root) for root in roots]
        order = [node for node in nodes(*flat) if node is not _X]
        place = {node: i for i, node in enumerate([_X, *order])}
        self._steps = [(node.kind, [place[arg] for arg in node.args], node.attributes) for node in order]
        self._results = [place[node] for node in flat]

    def __call__(self, low: float, high: float) -> list[Interval]:
        found = [Interval(low, high)]
        for kind, args, attributes in self._steps:
            if kind == "constant":
                found.append(DOUBLE.constant(float(attributes[0])))
            else:
                found.append(ENCLOSE[kind](DOUBLE, *(found[arg] for arg in args), *attributes))
        return [found[result] for result in self._results]


def _rounding(found: Approximation, magnitude: float) -> float:
    """What float32 adds: one rounding an fma, of the square of x, and those carried along. `magnitude` is the
    function's largest absolute value."""
    form, x = found.form, max(abs(found.low), abs(found.high))
    variable = x**form.stride
    variable_error = _HALF_ULP * variable if form.stride == 2 else 0.0
    value, error = abs(found.coefficients[-1]), 0.0
    for coefficient in reversed(found.coefficients[:-1]):
        error = error * (variable + variable_error) + value * variable_error
        value = value * variable + abs(coefficient) + error
        error += _HALF_ULP * value
    if form.power:
        factor, factor_error = x**form.power, (variable_error if form.power == 2 else 0.0)
        rest = form.linear * x + abs(form.offset)
        rest_error = abs(form.offset - single(form.offset)) + (_HALF_ULP * rest if form.linear and form.offset else 0.0)
        error = error * (factor + factor_error) + value * factor_error + rest_error
        error += _HALF_ULP * (magnitude + error + 1e-6)
    return error + 1e-40
