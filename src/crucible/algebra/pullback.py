"""From the gradient of an operation's value to those of its arguments: PyTorch's formulas, kinks and NaN included.

Where an operation has a kink, PyTorch does not multiply by a slope but chooses between gradients, so that an infinite
gradient times zero is zero and not NaN; so do these rules. For NaN as the argument they do as its GPU kernels (and the
scalar loops of the CPU's; their vector loops differ for hardtanh and the shrinks).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from crucible.algebra.expression import Expr, constant, make, number, where

Gradients: TypeAlias = tuple[Expr | None, ...]
"""One for each argument; None where there is none."""
Rule: TypeAlias = Callable[[Expr, Expr], Gradients]
"""From the gradient of a value and the value."""
TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)


def _unary(rule: Callable[..., Expr]) -> Rule:
    """A rule from gradient, argument, value and attributes."""
    return lambda g, y: (rule(g, y.args[0], y, *y.attributes),)


def _tie(g: Expr, first: Expr, second: Expr, loses: Callable[[Expr, Expr], Expr]) -> Expr:
    """Of maximum and minimum: each of two equals gets half, and both get all where one is NaN."""
    return where(loses(first, second), 0.0, where(first.equals(second), g * 0.5, g))


def _maximum(g: Expr, y: Expr) -> Gradients:
    a, b = y.args
    return _tie(g, a, b, lambda own, other: own < other), _tie(g, b, a, lambda own, other: own < other)


def _minimum(g: Expr, y: Expr) -> Gradients:
    a, b = y.args
    return _tie(g, a, b, lambda own, other: own > other), _tie(g, b, a, lambda own, other: own > other)


def _mul(g: Expr, y: Expr) -> Gradients:
    a, b = y.args
    return g * b, g * a


def _div(g: Expr, y: Expr) -> Gradients:
    divisor = y.args[1]
    return g / divisor, -g * (y / divisor)


def _fma(g: Expr, y: Expr) -> Gradients:
    a, b, _ = y.args
    return g * b, g * a, g


def _pow(g: Expr, y: Expr) -> Gradients:
    base, exponent = y.args
    if (power := number(exponent)) is not None:
        return (None if power == 0 else g * (power * base.pow(power - 1))), None
    to_base = where(exponent.equals(0.0), 0.0, g * (exponent * base.pow(exponent - 1)))
    vanishes = base.equals(0.0) & (exponent >= 0.0)
    return to_base, where(vanishes, 0.0, g * (y * base.log()))


def _where(g: Expr, y: Expr) -> Gradients:
    condition = y.args[0]
    return None, where(condition, g, 0.0), where(condition, 0.0, g)


def _prelu(g: Expr, y: Expr) -> Gradients:
    x, weight = y.args
    return where(x > 0, g, weight * g), where(x > 0, 0.0, x * g)


def _elu(g: Expr, x: Expr, y: Expr, alpha: float, scale: float, stretch: float) -> Expr:
    falling = (x if stretch == 1 else x * stretch).exp() * (alpha * scale * stretch)
    return where(x <= 0, g * falling, g if scale == 1 else g * scale)


def _elu_from_output(g: Expr, x: Expr, y: Expr, alpha: float, scale: float, stretch: float) -> Expr:
    return where(y <= 0, g * (stretch * (y + alpha * scale)), g if scale == 1 else g * scale)


def _softplus(g: Expr, x: Expr, y: Expr, beta: float, threshold: float) -> Expr:
    scaled = x if beta == 1 else x * beta
    return where(scaled > threshold, g, g * scaled.sigmoid())


def _logsigmoid(g: Expr, x: Expr, y: Expr) -> Expr:
    z = (-abs(x)).exp()
    ratio = z / (1 + z)
    return g * where(x < 0, 1 - ratio, ratio)


def _hardswish(g: Expr, x: Expr, y: Expr) -> Expr:
    return where(x <= -3, 0.0, where(x < 3, g * (x * (1 / 3) + 0.5), g))


def _clamp(g: Expr, x: Expr, y: Expr, low: float, high: float) -> Expr:
    """NaN lies outside: even one bound alone, or none, is compared with."""
    conditions = [x >= low] * (low > -math.inf) + [x <= high] * (high < math.inf) or [x.equals(x)]
    return where(conditions[0] & conditions[1] if len(conditions) == 2 else conditions[0], g, 0.0)


def _hardtanh(g: Expr, x: Expr, y: Expr, low: float, high: float) -> Expr:
    return where((x <= low) | (x >= high), 0.0, g)


def _shrink(g: Expr, x: Expr, y: Expr, bound: float) -> Expr:
    return where((x >= -bound) & (x <= bound), 0.0, g)


RULES: dict[str, Rule] = {
    "add": lambda g, y: (g, g),
    "sub": lambda g, y: (g, -g),
    "mul": _mul,
    "div": _div,
    "fma": _fma,
    "pow": _pow,
    "neg": _unary(lambda g, x, y: -g),
    "abs": _unary(lambda g, x, y: g * x.sign()),
    "sign": _unary(lambda g, x, y: constant(0.0)),
    "detach": _unary(lambda g, x, y: constant(0.0)),
    "maximum": _maximum,
    "minimum": _minimum,
    "where": _where,
    "cast": _unary(lambda g, x, y, dtype: g.cast(dtype)),
    "square": _unary(lambda g, x, y: g * (2 * x)),
    "sqrt": _unary(lambda g, x, y: g / (2 * y)),
    "rsqrt": _unary(lambda g, x, y: -0.5 * g * (y * y * y)),
    "reciprocal": _unary(lambda g, x, y: -g * (y * y)),
    "exp": _unary(lambda g, x, y: g * y),
    "exp2_approx": _unary(lambda g, x, y: g * (y * math.log(2))),
    "expm1": _unary(lambda g, x, y: g * (y + 1)),
    "log": _unary(lambda g, x, y: g / x),
    "log1p": _unary(lambda g, x, y: g / (x + 1)),
    "sin": _unary(lambda g, x, y: g * x.cos()),
    "cos": _unary(lambda g, x, y: g * -x.sin()),
    "erf": _unary(lambda g, x, y: TWO_OVER_SQRT_PI * (-x.square()).exp() * g),
    "tanh": _unary(lambda g, x, y: g * (1 - y * y)),
    "sigmoid": _unary(lambda g, x, y: g * ((1 - y) * y)),
    "relu": _unary(lambda g, x, y: where(x <= 0, 0.0, g)),
    "clamp": _unary(_clamp),
    "hardtanh": _unary(_hardtanh),
    "leaky_relu": _unary(lambda g, x, y, slope: where(x > 0, g, g * slope)),
    "prelu": _prelu,
    "elu": _unary(_elu),
    "silu": _unary(lambda g, x, y: g * _slope("silu", x)),
    "gelu": _unary(lambda g, x, y: g * _slope("gelu", x)),
    "gelu_tanh": _unary(lambda g, x, y: g * _slope("gelu_tanh", x)),
    "mish": _unary(lambda g, x, y: g * _slope("mish", x)),
    "softplus": _unary(_softplus),
    "logsigmoid": _unary(_logsigmoid),
    "hardsigmoid": _unary(lambda g, x, y: where((x > -3) & (x < 3), g * (1 / 6), 0.0)),
    "hardswish": _unary(_hardswish),
    "hardshrink": _unary(_shrink),
    "softshrink": _unary(_shrink),
    "tanhshrink": _unary(lambda g, x, y: g - g * (1 - x.tanh().square())),
    "threshold": _unary(lambda g, x, y, threshold, value: where(x <= threshold, 0.0, g)),
}
"""Operations without a rule are differentiated by their definition. Conditions have no gradient."""

FROM_OUTPUT: dict[str, Rule] = {
    "relu": _unary(lambda g, x, y: where(y <= 0, 0.0, g)),
    "hardtanh": _unary(lambda g, x, y, low, high: _hardtanh(g, y, y, low, high)),
    "leaky_relu": _unary(lambda g, x, y, slope: where(y > 0, g, g * slope)),
    "elu": _unary(_elu_from_output),
    "threshold": _unary(lambda g, x, y, threshold, value: where(y <= threshold, 0.0, g)),
}
"""The same from the value alone, where that says enough (`reads_output`); it stands in for the argument."""


def reads_output(node: Expr) -> bool:
    """Whether FROM_OUTPUT gives this operation's gradient as its rule does, at kinks and for NaN too."""
    attributes = [value for value in node.attributes if isinstance(value, float)]
    match node.kind:
        case "relu" | "hardtanh":
            return True
        case "leaky_relu":
            return attributes[0] >= 0
        case "elu":
            return min(attributes) > 0
        case "threshold":
            return attributes[1] <= attributes[0]
        case _:
            return False


def _slope(kind: str, x: Expr) -> Expr:
    return make(f"{kind}_slope", (x,))
