"""What the named functions are made of, and how they rise and fall.

`PRIMITIVES` are computed by one C++ expression. All other operations are defined by them, here, once: the value
in float64, the C++ text and, where nothing better is known, range and derivative all come from that definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from crucible.algebra.expression import Attribute, Expr, constant, make, nodes, number, where

Direction = Literal["increasing", "decreasing", "constant"]
INF = math.inf
SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)

ISSUE_SLOTS = {
    "add": 1, "sub": 1, "mul": 1, "fma": 1, "neg": 0, "abs": 0, "minimum": 1, "maximum": 1, "div": 10, "reciprocal": 8,
    "sqrt": 9, "rsqrt": 4, "exp": 8, "exp2_approx": 1, "expm1": 27, "log": 25, "log1p": 29, "sin": 20, "cos": 20,
    "erf": 27, "tanh": 15, "pow": 85, "cast": 2, "where": 1, "lt": 1, "le": 1, "gt": 1, "ge": 1, "eq": 1, "ne": 1,
    "and": 1, "or": 1, "not": 1,
}  # fmt: skip
"""Instructions that a warp issues for each primitive: counted in the machine code of nvcc 13.0 for sm_90 with its
defaults, along the path that ordinary values take. Signs and absolute values ride on other instructions."""
PRIMITIVES = frozenset(ISSUE_SLOTS)
LONG = frozenset(kind for kind, slots in ISSUE_SLOTS.items() if slots >= 8)
"""Primitives that are functions of many instructions."""
BRANCHING = frozenset({"sqrt", "expm1", "log1p", "sin", "cos", "pow"})
"""Those whose code branches, so that those of several elements are not done side by side: by the machine code of nvcc
13.0 for sm_90; expm1 where it stands on one side of a condition, as in ELU. (Divisions by what is no plain divisor do,
too: they are rare.)"""
CONDITIONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"})
NOUNS = {
    "add": "sum", "sub": "difference", "mul": "product", "div": "quotient", "fma": "sum", "neg": "negative",
    "abs": "magnitude", "maximum": "larger", "minimum": "smaller", "where": "chosen", "cast": "rounded", "exp": "power",
    "exp2_approx": "power",
    "pow": "power", "log": "logarithm", "sqrt": "root", "rsqrt": "inverse_root", "and": "both", "or": "either",
    "not": "fails", "lt": "below", "le": "at_most", "gt": "above", "ge": "at_least", "eq": "equal", "ne": "differs",
}  # fmt: skip
"""What a value is called that an operation makes."""


@dataclass(frozen=True)
class Piece:
    """A stretch of the real line on which a function only rises, only falls, or stays."""

    end: float
    """Where it ends; it begins where the one before it ends."""
    direction: Direction


@dataclass(frozen=True)
class Shape:
    """How a function of one argument rises and falls."""

    pieces: tuple[Piece, ...]
    """From minus to plus infinity. Ends are right to 1e-7, relatively."""
    low: float = -INF
    """No value lies below."""
    high: float = INF
    """No value lies above."""
    slack: float = 0.0
    """How much float32 arithmetic may lift the values inside of a piece above (below) those at its ends, as part
    of the larger of 1 and the values there. 0 where only correctly rounded steps that never turn round are taken."""
    tail: float = -INF
    """Further left than this, values lie between the value here and 0."""


def shape(*pieces: tuple[float, Direction], low: float = -INF, high: float = INF, slack: float = 0.0,
          tail: float = -INF) -> Shape:  # fmt: skip
    """A Shape from pairs of end and direction."""
    return Shape(tuple(Piece(*piece) for piece in pieces), low, high, slack, tail)


def rising(low: float = -INF, high: float = INF, slack: float = 0.0) -> Shape:
    """Strictly, everywhere."""
    return shape((INF, "increasing"), low=low, high=high, slack=slack)


def ramp(low: float, high: float) -> Shape:
    """Constant, then rising, then constant."""
    before: list[tuple[float, Direction]] = [(low, "constant")] if low > -INF else []
    after: list[tuple[float, Direction]] = [(INF, "constant")] if high < INF else []
    return shape(*before, (high, "increasing"), *after, low=low, high=high)


@dataclass(frozen=True)
class Function:
    """An operation that is defined by others."""

    define: Callable[..., Expr]
    """Its value, from its arguments and attributes."""
    shape: Callable[..., Shape | None] = lambda *attributes: None
    """From its attributes; None where it is not known or depends on more than one argument."""


SMOOTH = 2.0**-20
"""Slack of smooth functions: their float32 forms are right to a few units (tested against float64)."""


def _gelu(x: Expr) -> Expr:
    return 0.5 * x * (1 + (x * SQRT_HALF).erf())


def _gelu_slope(x: Expr) -> Expr:
    density = (-0.5 * x.square()).exp() * (0.5 * SQRT_2_OVER_PI)
    return 0.5 * (1 + (x * SQRT_HALF).erf()) + x * density


def _inner(x: Expr) -> Expr:
    return SQRT_2_OVER_PI * (x + 0.044715 * (x.square() * x))


def _gelu_tanh(x: Expr) -> Expr:
    return 0.5 * x * (1 + _inner(x).tanh())


def _gelu_tanh_slope(x: Expr) -> Expr:
    tanh = _inner(x).tanh()
    inner_slope = SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x.square())
    return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh.square()) * inner_slope


def _silu_slope(x: Expr) -> Expr:
    sigmoid = x.sigmoid()
    return sigmoid * (1 + x * (1 - sigmoid))


def _mish_parts(x: Expr) -> tuple[Expr, Expr]:
    """e = exp(x), as far as tanh(log(1 + e)) is not 1 in float64 either, and e·(e + 2).

    That tanh is ((1 + e)² - 1) / ((1 + e)² + 1), and (1 + e)² - 1 is e·(e + 2), which cancels nothing: 15 instructions
    where log1p and tanh are 44, of which one branches.
    """
    power = x.minimum(20.0).exp()
    return power, power * (power + 2)


def _mish(x: Expr) -> Expr:
    _, square = _mish_parts(x)
    return x * (square / (square + 2))


def _mish_slope(x: Expr) -> Expr:
    """tanh + x·sigmoid·(1 - tanh²), where 1 + tanh is 2·(1 + e)² / ((1 + e)² + 1), and sigmoid e / (1 + e)."""
    power, square = _mish_parts(x)
    inverse = (square + 2).reciprocal()
    tanh = square * inverse
    return tanh + x * (2 * power * (power + 1) * inverse) * (1 - tanh)


def _elu(x: Expr, alpha: float, scale: float, stretch: float) -> Expr:
    """PyTorch's: negative part alpha·scale·expm1(stretch·x), positive part scale·x; selu and celu are forms of it."""
    return where(x <= 0, _times(_times(x, stretch).expm1(), alpha * scale), _times(x, scale))


def _elu_shape(alpha: float, scale: float, stretch: float) -> Shape | None:
    if min(alpha, scale, stretch) <= 0:
        return None
    return rising(low=-alpha * scale * (1 + SMOOTH), slack=SMOOTH)


def _softplus(x: Expr, beta: float, threshold: float) -> Expr:
    scaled = _times(x, beta)
    return where(scaled > threshold, x, _times(scaled.exp().log1p(), 1 / beta))


def _softplus_shape(beta: float, threshold: float) -> Shape | None:
    """At the threshold the value drops by log1p(exp(-threshold)) / beta: too little to count from 15 on."""
    return rising(low=0.0, slack=SMOOTH * max(1, 1 / beta)) if beta > 0 and threshold >= 15 else None


def _softshrink(x: Expr, bound: float) -> Expr:
    return where(x > bound, x - bound, where(x < -bound, x + bound, x * 0.0))


def _hardshrink(x: Expr, bound: float) -> Expr:
    return where((x >= -bound) & (x <= bound), 0.0, x)


def _clamp(x: Expr, low: float, high: float) -> Expr:
    """NaN stays NaN; where the bounds are in the wrong order it is `high`, as in PyTorch."""
    raised = x if low == -INF else x.maximum(low)
    return raised if high == INF else raised.minimum(high)


def _clamp_shape(low: float, high: float) -> Shape:
    return ramp(low, high) if low < high else shape((INF, "constant"), low=high, high=high)


def _leaky_shape(slope: float) -> Shape:
    if slope == 0:
        return ramp(0.0, INF)
    return rising() if slope > 0 else shape((0.0, "decreasing"), (INF, "increasing"), low=0.0)


def _shrink_shape(bound: float) -> Shape | None:
    return shape((-bound, "increasing"), (bound, "constant"), (INF, "increasing")) if bound >= 0 else None


def _threshold_shape(threshold: float, value: float) -> Shape | None:
    return shape((threshold, "constant"), (INF, "increasing"), low=value) if value <= threshold else None


def _polynomial(x: Expr, *form: Attribute) -> Expr:
    """linear·x + offset + x^power · Q(x^stride), by Horner's rule; see `polynomial.Approximation`."""
    linear, offset, power, stride, *coefficients = (float(value) for value in form[4:])
    variable = x if stride == 1 else x * x
    value = constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value.fma(variable, coefficient)
    if power == 0:
        return value
    rest = _times(x, linear) if offset == 0 else x.fma(linear, offset) if linear else constant(offset)
    factor = variable if power == stride else x if power == 1 else x * x
    return value * factor if number(rest) == 0 or (linear == 0 and offset == 0) else value.fma(factor, rest)


def _times(x: Expr, factor: float) -> Expr:
    """Without a multiplication by 1."""
    return x if factor == 1 else x * factor


def _dip(bottom: float) -> Shape:
    """Falling from 0 to a minimum, then rising: GELU and its like."""
    return shape((bottom, "decreasing"), (INF, "increasing"), slack=SMOOTH, tail=-90.0)


def _unit_ramp() -> Shape:
    return shape((-3.0, "constant"), (3.0, "increasing"), (INF, "constant"), low=0.0, high=1.0)


def _hardswish_shape() -> Shape:
    return shape((-3.0, "constant"), (-1.5, "decreasing"), (INF, "increasing"), slack=SMOOTH)


def _even() -> Shape:
    return shape((0.0, "decreasing"), (INF, "increasing"), low=0.0)


FUNCTIONS: dict[str, Function] = {
    "detach": Function(lambda x: x, rising),
    "sign": Function(lambda x: where(x > 0, 1.0, where(x < 0, -1.0, 0.0))),
    "square": Function(lambda x: x * x, _even),
    "relu": Function(lambda x: x.maximum(0.0), lambda: ramp(0.0, INF)),
    "clamp": Function(_clamp, _clamp_shape),
    "hardtanh": Function(_clamp, _clamp_shape),
    "leaky_relu": Function(lambda x, slope: where(x > 0, x, x * slope), _leaky_shape),
    "prelu": Function(lambda x, weight: where(x > 0, x, x * weight)),
    "elu": Function(_elu, _elu_shape),
    "sigmoid": Function(lambda x: (1 + (-x).exp()).reciprocal(), lambda: rising(0.0, 1.0, SMOOTH)),
    "silu": Function(lambda x: x / (1 + (-x).exp()), lambda: _dip(-1.2784645427610738)),
    "silu_slope": Function(_silu_slope),
    "gelu": Function(_gelu, lambda: _dip(-0.7517915246935645)),
    "gelu_slope": Function(_gelu_slope),
    "gelu_tanh": Function(_gelu_tanh, lambda: _dip(-0.7524614220710163)),
    "gelu_tanh_slope": Function(_gelu_tanh_slope),
    "mish": Function(_mish, lambda: _dip(-1.1924312145154954)),
    "mish_slope": Function(_mish_slope),
    "softplus": Function(_softplus, _softplus_shape),
    "logsigmoid": Function(lambda x: x.minimum(0.0) - (-abs(x)).exp().log1p(), lambda: rising(high=0.0, slack=SMOOTH)),
    "softsign": Function(lambda x: x / (1 + abs(x)), lambda: rising(-1.0, 1.0, SMOOTH)),
    "hardsigmoid": Function(lambda x: (x + 3).maximum(0.0).minimum(6.0) * (1 / 6), _unit_ramp),
    "hardswish": Function(lambda x: x * ((x + 3).maximum(0.0).minimum(6.0) * (1 / 6)), _hardswish_shape),
    "hardshrink": Function(_hardshrink, _shrink_shape),
    "softshrink": Function(_softshrink, _shrink_shape),
    "tanhshrink": Function(lambda x: x - x.tanh(), lambda: rising(slack=SMOOTH)),
    "threshold": Function(lambda x, threshold, value: where(x <= threshold, value, x), _threshold_shape),
    "polynomial": Function(_polynomial),
}
"""All operations that are not primitives."""


def define(node: Expr) -> Expr:
    """The value of an operation by its definition; may hold further defined operations."""
    return FUNCTIONS[node.kind].define(*node.args, *node.attributes)


def lowered(expr: Expr, roots: dict[Expr, Expr] | None = None) -> Expr:
    """The same value by primitives alone. `roots` collects what became of each value."""
    done: dict[Expr, Expr] = {} if roots is None else roots
    return _lowered(expr, done)


def _lowered(expr: Expr, done: dict[Expr, Expr]) -> Expr:
    for node in nodes(expr):
        if node in done:
            continue
        args = tuple(done[arg] for arg in node.args)
        same = make(node.kind, args, *node.attributes)
        done[node] = _lowered(define(same), done) if node.kind in FUNCTIONS else same
    return done[expr]


def cost(*exprs: Expr, of: frozenset[str] = PRIMITIVES) -> int:
    """Instructions a warp issues for them, what they share once, for some primitives or all: an estimate from
    ISSUE_SLOTS."""
    return sum(ISSUE_SLOTS[node.kind] for node in nodes(*map(lowered, exprs)) if node.kind in of)
