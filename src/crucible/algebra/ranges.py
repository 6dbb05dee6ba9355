"""Where values lie: sound intervals of expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from crucible.algebra import interval as of
from crucible.algebra.expression import Attribute, Expr, make, name_of, nodes, tensor
from crucible.algebra.interval import ANY, INF, NUMBERS, SINGLE, Interval, Precision
from crucible.algebra.operations import FUNCTIONS, Shape, define

Bounds = Mapping[str, Interval]
_POSITIVE, _ABOVE_MINUS_1 = Interval(0.0, INF), Interval(-1.0, INF)
_UNIT = Interval(-1.0, 1.0)
_LARGEST = 3.4028234663852886e38  # float32
DEFAULTS: dict[str, tuple[float, ...]] = {"softplus": (1.0, 20.0)}
"""Attributes with which functions are approximated."""


def interval(expr: Expr, bounds: Bounds | None = None, precision: Precision = SINGLE) -> Interval:
    """Where the value lies when tensors and parameters lie within `bounds` (by name; anywhere, NaN included, if not
    named). In single precision it holds for what the emitted kernel computes as well as for the exact value."""
    return intervals((expr,), bounds, precision)[expr]


def intervals(
    roots: tuple[Expr, ...], bounds: Bounds | None = None, precision: Precision = SINGLE
) -> dict[Expr, Interval]:
    """The interval of every value below the roots."""
    found: dict[Expr, Interval] = {}
    for root in roots:
        enclose(root, found, bounds or {}, precision)
    return found


def enclose(root: Expr, found: dict[Expr, Interval], bounds: Bounds, precision: Precision = SINGLE) -> Interval:
    """The interval of one value; `found` keeps those of all values below it, for the next call with these bounds."""
    for node in nodes(root):
        if node in found:
            continue
        if node.kind in ("tensor", "parameter"):
            found[node] = bounds.get(name_of(node), ANY)
        elif node.kind == "constant":
            found[node] = precision.constant(float(node.attributes[0]))
        elif node.kind == "polynomial":
            found[node] = _approximated(node, found, bounds, precision)
        elif node.kind in FUNCTIONS:
            natural = enclose(define(node), found, bounds, precision)
            found[node] = _refined(node, found[node.args[0]], natural, precision)
        else:
            found[node] = ENCLOSE[node.kind](precision, *(found[arg] for arg in node.args), *node.attributes)
    return found[root]


def shape_of(node: Expr) -> Shape | None:
    """How a defined function of one argument rises and falls, where that is known."""
    return FUNCTIONS[node.kind].shape(*node.attributes) if node.kind in FUNCTIONS and len(node.args) == 1 else None


def _refined(node: Expr, argument: Interval, natural: Interval, precision: Precision) -> Interval:
    """The definition's interval, which counts each use of the argument as if it were another, narrowed by the values
    at the ends of the argument's interval and of the pieces inside it."""
    form = shape_of(node)
    if form is None or argument.empty or natural.empty:
        return natural
    values = list(_values(node, form, argument, precision))
    low, high = min(value.low for value in values), max(value.high for value in values)
    largest = max(1.0, *(abs(bound) for bound in (low, high) if math.isfinite(bound)), 0.0)
    slack = form.slack * largest if precision.single else 0.0
    narrow = Interval(max(low - slack, form.low, natural.low), min(high + slack, form.high, natural.high), natural.nan)
    return natural if narrow.empty else narrow


def _values(node: Expr, form: Shape, argument: Interval, precision: Precision) -> Iterator[Interval]:
    """At both ends and at every turn in between. At infinity also at the largest number: there may be NaN."""

    def at(low: float, high: float) -> Interval:
        return _at(node.kind, node.attributes, low, high, precision)

    for end in (argument.low, argument.high):
        yield at(max(end, form.tail), max(end, form.tail))
        if end < form.tail:
            yield Interval(0.0, 0.0)
        elif math.isinf(end):
            yield at(math.copysign(_LARGEST, end), math.copysign(_LARGEST, end))
    for piece in form.pieces:
        margin = 1e-7 * abs(piece.end)
        if math.isfinite(piece.end) and argument.low <= piece.end + margin and piece.end - margin <= argument.high:
            yield at(piece.end - margin, piece.end + margin)


@cache
def _at(kind: str, attributes: tuple[Attribute, ...], low: float, high: float, precision: Precision) -> Interval:
    definition = define(make(kind, (tensor("x"),), *attributes))
    return enclose(definition, {}, {"x": Interval(low, high)}, precision)


def _approximated(node: Expr, found: dict[Expr, Interval], bounds: Bounds, precision: Precision) -> Interval:
    """A polynomial lies around the function it stands for, where it stands for it."""
    argument = found[node.args[0]]
    kind, low, high, error = str(node.attributes[0]), *(float(value) for value in node.attributes[1:4])
    if argument.empty or not low <= argument.low <= argument.high <= high:
        return enclose(define(node), found, bounds, precision)
    around = enclose(make(kind, node.args, *DEFAULTS.get(kind, ())), found, bounds, precision)
    return Interval(around.low - error, around.high + error, around.nan)


def _increasing(
    function: Callable[[float], float], image: Interval = NUMBERS, domain: Interval = NUMBERS, ulps: int = 2
) -> Callable[[Precision, Interval], Interval]:
    return lambda precision, a: precision.rising(function, a, domain, image, ulps)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else INF


def _exp2(x: float) -> float:
    return math.exp2(x) if x < 1023 else INF


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 709 else INF


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -INF


def _log1p(x: float) -> float:
    return math.log1p(x) if x > -1 else -INF


def _reciprocal(precision: Precision, a: Interval) -> Interval:
    return precision.div(Interval(1.0, 1.0), a)


_SQRT = _increasing(math.sqrt, _POSITIVE, _POSITIVE, ulps=0)


def _rsqrt(precision: Precision, a: Interval) -> Interval:
    exact = precision.quotient(Interval(1.0, 1.0), _SQRT(precision, a))
    widened = precision.outward(exact.low, exact.high, ulps=3, nan=exact.nan)
    return widened if widened.low < 0 else Interval(max(widened.low, 0.0), widened.high, widened.nan)


def _both(precision: Precision, a: Interval, b: Interval) -> Interval:
    return Interval(min(a.low, b.low), min(a.high, b.high))


def _either(precision: Precision, a: Interval, b: Interval) -> Interval:
    return Interval(max(a.low, b.low), max(a.high, b.high))


ENCLOSE: dict[str, Callable[..., Interval]] = {
    "add": Precision.add,
    "sub": Precision.sub,
    "mul": Precision.mul,
    "div": Precision.div,
    "pow": Precision.power,
    "fma": lambda precision, a, b, c: precision.add(precision.mul(a, b), c),
    "neg": lambda _, a: of.negative(a),
    "abs": lambda _, a: of.absolute(a),
    "maximum": lambda _, a, b: of.greatest(a, b),
    "minimum": lambda _, a, b: of.least(a, b),
    "cast": lambda _, a, dtype: of.rounded(a, dtype),
    "reciprocal": _reciprocal,
    "sqrt": _SQRT,
    "rsqrt": _rsqrt,
    "exp": _increasing(_exp, _POSITIVE),
    "exp2_approx": _increasing(_exp2, _POSITIVE),
    "expm1": _increasing(_expm1, _ABOVE_MINUS_1),
    "log": _increasing(_log, domain=_POSITIVE),
    "log1p": _increasing(_log1p, domain=_ABOVE_MINUS_1),
    "erf": _increasing(math.erf, _UNIT),
    "tanh": _increasing(math.tanh, _UNIT),
    "sin": lambda precision, a: precision.wave(math.sin, math.pi / 2, a, 2),
    "cos": lambda precision, a: precision.wave(math.cos, 0.0, a, 2),
    "lt": lambda _, a, b: of.below(a, b, or_equal=False),
    "le": lambda _, a, b: of.below(a, b, or_equal=True),
    "gt": lambda _, a, b: of.below(b, a, or_equal=False),
    "ge": lambda _, a, b: of.below(b, a, or_equal=True),
    "eq": lambda _, a, b: of.equal(a, b),
    "ne": lambda _, a, b: of.opposite(of.equal(a, b)),
    "and": _both,
    "or": _either,
    "not": lambda _, a: of.opposite(a),
    "where": lambda _, condition, one, other: of.chosen(condition, one, other),
}
"""The intervals of primitives, from a precision, the arguments' intervals and the attributes."""
