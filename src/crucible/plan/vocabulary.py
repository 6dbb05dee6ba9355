"""PyTorch's pointwise operations as expressions.

Each entry takes the arguments of the ATen operation by their names, tensors as expressions, and gives the value.
"""

from __future__ import annotations

from collections.abc import Callable

from crucible.algebra.expression import DTYPES, Expr, Scalar, lift, where
from crucible.plan.lazy import NotCovered

Build = Callable[..., Expr]


def _binary(method: str) -> Build:
    return lambda self, other: getattr(lift(self), method)(other)


def _unary(method: str) -> Build:
    return lambda self: getattr(self, method)()


def _scaled(other: Scalar, alpha: float) -> Scalar:
    return other if alpha == 1 else lift(other) * alpha


def _div(self: Expr, other: Scalar, rounding_mode: str | None = None) -> Expr:
    if rounding_mode is not None:
        raise NotCovered(f"div with rounding_mode={rounding_mode!r}")
    return lift(self) / other


def _clamp(self: Expr, min: Scalar | None = None, max: Scalar | None = None) -> Expr:
    if isinstance(min, Expr) or isinstance(max, Expr):
        low = self if min is None else self.maximum(min)
        return low if max is None else low.minimum(max)
    return self.clamp(min, max)


def _elu(self: Expr, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expr:
    if scale == 1 and input_scale == 1:
        return self.elu(alpha)
    negative = (self * input_scale).expm1() * (alpha * scale)
    return where(self > 0, self * scale, negative)


def _pow(self: Scalar, exponent: Scalar) -> Expr:
    return lift(self).pow(exponent)


def _cast(self: Expr, dtype: str | None) -> Expr:
    if dtype is None or dtype in ("float32", "float64"):
        return self
    if dtype not in DTYPES:
        raise NotCovered(f"a cast to {dtype}")
    return self.cast(dtype)


def _lerp(self: Expr, end: Expr, weight: Scalar) -> Expr:
    return self + (end - self) * weight


POINTWISE: dict[str, Build] = {
    "add": lambda self, other, alpha=1: lift(self) + _scaled(other, alpha),
    "sub": lambda self, other, alpha=1: lift(self) - _scaled(other, alpha),
    "rsub": lambda self, other, alpha=1: lift(other) - _scaled(self, alpha),
    "mul": lambda self, other: lift(self) * other,
    "multiply": lambda self, other: lift(self) * other,
    "div": _div,
    "true_divide": _div,
    "divide": _div,
    "pow": _pow,
    "neg": lambda self: -self,
    "abs": lambda self: abs(self),
    "minimum": _binary("minimum"),
    "maximum": _binary("maximum"),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": lambda self, min: _clamp(self, min),
    "clamp_max": lambda self, max: _clamp(self, None, max),
    "hardtanh": lambda self, min_val=-1.0, max_val=1.0: self.hardtanh(min_val, max_val),
    "relu": _unary("relu"),
    "relu6": _unary("relu6"),
    "leaky_relu": lambda self, negative_slope=0.01: self.leaky_relu(negative_slope),
    "prelu": lambda self, weight: self.prelu(lift(weight)),
    "elu": _elu,
    "selu": _unary("selu"),
    "celu": lambda self, alpha=1.0: self.celu(alpha),
    "gelu": lambda self, approximate="none": self.gelu(approximate),
    "silu": _unary("silu"),
    "mish": _unary("mish"),
    "softplus": lambda self, beta=1.0, threshold=20.0: self.softplus(beta, threshold),
    "sigmoid": _unary("sigmoid"),
    "tanh": _unary("tanh"),
    "hardsigmoid": _unary("hardsigmoid"),
    "hardswish": _unary("hardswish"),
    "hardshrink": lambda self, lambd=0.5: self.hardshrink(lambd),
    "softshrink": lambda self, lambd=0.5: self.softshrink(lambd),
    "threshold": lambda self, threshold, value: self.threshold(threshold, value),
    "log_sigmoid": _unary("logsigmoid"),
    "exp": _unary("exp"),
    "expm1": _unary("expm1"),
    "log": _unary("log"),
    "log1p": _unary("log1p"),
    "sqrt": _unary("sqrt"),
    "rsqrt": _unary("rsqrt"),
    "reciprocal": _unary("reciprocal"),
    "square": _unary("square"),
    "sign": _unary("sign"),
    "sin": _unary("sin"),
    "cos": _unary("cos"),
    "erf": _unary("erf"),
    "lt": lambda self, other: self < other,
    "le": lambda self, other: self <= other,
    "gt": lambda self, other: self > other,
    "ge": lambda self, other: self >= other,
    "eq": _binary("equals"),
    "ne": _binary("differs"),
    "logical_and": lambda self, other: self & other,
    "logical_or": lambda self, other: self | other,
    "logical_not": lambda self: ~self,
    "bitwise_and": lambda self, other: self & other,
    "bitwise_or": lambda self, other: self | other,
    "bitwise_not": lambda self: ~self,
    "where": lambda condition, self, other: where(condition, self, other),
    "masked_fill": lambda self, mask, value: where(mask, value, self),
    "addcmul": lambda self, tensor1, tensor2, value=1: self + _scaled(tensor1 * tensor2, value),
    "addcdiv": lambda self, tensor1, tensor2, value=1: self + _scaled(tensor1 / tensor2, value),
    "lerp": _lerp,
    "_to_copy": lambda self, dtype=None, **_: _cast(self, dtype),
    "to": lambda self, dtype=None, **_: _cast(self, dtype),
}
"""By plain name. An entry raises NotCovered for arguments that it does not cover."""
BROADCAST = frozenset(POINTWISE) - {"prelu"}
"""Of these, those whose tensors are broadcast over each other; a weight of `prelu` goes along channels."""
CONDITIONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_not"}) | frozenset(
    {"bitwise_and", "bitwise_or", "bitwise_not"}
)
"""They give booleans, which live inside of chains alone."""
