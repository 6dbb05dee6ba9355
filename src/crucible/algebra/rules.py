"""Rewrites of one value by another: what they are called, what they cost in accuracy, when they apply."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from crucible.algebra.expression import Expr, constant, inputs, make, number, where
from crucible.algebra.interval import DOUBLE, FALSE, ROUND, TRUE, Interval
from crucible.algebra.operations import CONDITIONS
from crucible.algebra.ranges import interval

At: TypeAlias = Callable[[Expr], Interval]
INF = math.inf


@dataclass(frozen=True)
class Rule:
    """A rewrite whose error is known."""

    name: str
    apply: Callable[[Expr, At], Expr | None]
    """The new value, from the old one and the intervals of values below; None where the rule does not apply."""
    relative_error: float = 0.0
    """By how much the new value may differ, as part of it, when both are computed in float32."""
    note: str = ""
    """Where the two differ otherwise."""


_ONE_ROUNDING = 2.0**-24
_ZERO_SIGN = "-0 may become 0"
_RANGE_ENDS = "where an intermediate value overflows or underflows, the new value may be closer to the exact one"


def folded(node: Expr, at: At) -> Expr | None:
    """Constants alone: computed now, in float64."""
    if not node.args or node.kind == "polynomial" or any(number(arg) is None for arg in node.args):
        return None
    found = interval(node, precision=DOUBLE)
    if found.empty:
        return constant(math.nan)
    middle = found.low if found.low == found.high else (found.low + found.high) / 2
    close = found.low == found.high or found.high - found.low <= 1e-14 * abs(middle) or found.magnitude < 1e-300
    return constant(middle) if close and not found.nan else None


def neutral(node: Expr, at: At) -> Expr | None:
    """x * 1, x + 0 and the like."""
    if node.kind not in ("add", "sub", "mul", "div"):
        return None
    a, b = node.args
    left, right = number(a), number(b)
    match node.kind:
        case "add":
            return a if right == 0 else b if left == 0 else None
        case "sub":
            return a if right == 0 else None
        case "mul":
            return a if right == 1 else b if left == 1 else -a if right == -1 else -b if left == -1 else None
        case _:
            return a if right == 1 else -a if right == -1 else None


def zero_product(node: Expr, at: At) -> Expr | None:
    """x * 0 where x is neither infinite nor NaN."""
    if node.kind != "mul":
        return None
    a, b = node.args
    vanishes = (number(b) == 0 and at(a).bounded) or (number(a) == 0 and at(b).bounded)
    return constant(0.0) if vanishes else None


def negations(node: Expr, at: At) -> Expr | None:
    """-(-x), x + (-y), x - (-y), (-x) * c."""
    if node.kind == "neg":
        return node.args[0].args[0] if node.args[0].kind == "neg" else None
    if node.kind not in ("add", "sub", "mul"):
        return None
    bare = [arg.args[0] if arg.kind == "neg" else None for arg in node.args]
    match node.kind, *bare:
        case "add", _, Expr() as right:
            return node.args[0] - right
        case "sub", _, Expr() as right:
            return node.args[0] + right
        case "add", Expr() as left, _:
            return node.args[1] - left
        case "mul", Expr() as left, Expr() as right:
            return left * right
        case "mul", Expr() as left, _ if (factor := number(node.args[1])) is not None:
            return left * -factor
        case "mul", _, Expr() as right if (factor := number(node.args[0])) is not None:
            return right * -factor
    return None


def exact_division(node: Expr, at: At) -> Expr | None:
    """By a power of two."""
    divisor = number(node.args[1]) if node.kind == "div" else None
    if not divisor or not math.isfinite(divisor):
        return None
    return node.args[0] * (1 / divisor) if abs(math.frexp(divisor)[0]) == 0.5 and 1e-30 < abs(divisor) < 1e30 else None


def division(node: Expr, at: At) -> Expr | None:
    """By another number: what PyTorch does on a GPU too."""
    divisor = number(node.args[1]) if node.kind == "div" else None
    return node.args[0] * (1 / divisor) if divisor and 1e-30 < abs(divisor) < 1e30 else None


def power(node: Expr, at: At) -> Expr | None:
    """The exponents that PyTorch computes by multiplication."""
    exponent = number(node.args[1]) if node.kind == "pow" else None
    base = node.args[0] if node.args else node
    return base.square() * base if exponent == 3 else base.square().reciprocal() if exponent == -2 else None


def choice(node: Expr, at: At) -> Expr | None:
    """A where that always chooses the same, and what does not depend on the choice."""
    if node.kind != "where":
        return None
    condition, one, other = node.args
    if one is other or at(condition) == TRUE:
        return one
    if condition.kind == "not":
        return where(condition.args[0], other, one)
    return other if at(condition) == FALSE else None


def decided(node: Expr, at: At) -> Expr | None:
    """A comparison that always comes out the same, and the sign of what has only one."""
    if node.kind in CONDITIONS and at(node).low == at(node).high:
        return constant(at(node).low)
    if node.kind == "sign" and not at(node.args[0]).nan and at(node).low == at(node).high:
        return constant(at(node).low)
    return None


def limits(node: Expr) -> tuple[float, float] | None:
    """Of relu, clamp and hardtanh, whose values are the same for the same limits."""
    if node.kind == "relu":
        return 0.0, INF
    if node.kind in ("clamp", "hardtanh"):
        low, high = (float(value) for value in node.attributes)
        return (low, high) if low <= high else None
    return None


def clamped(node: Expr, at: At) -> Expr | None:
    """A clamp that cuts nothing off, or nothing on one side, or everything."""
    if (ends := limits(node)) is None:
        return None
    (low, high), x = ends, node.args[0]
    inside = at(x)
    if inside.empty or (low <= inside.low and inside.high <= high):
        return x
    if not inside.nan and (inside.high <= low or inside.low >= high):
        return constant(low if inside.high <= low else high)
    narrowed = x.clamp(-INF if low <= inside.low else low, INF if high >= inside.high else high)
    if narrowed.attributes == (0.0, INF):
        narrowed = x.relu()
    return narrowed if narrowed is not node and limits(narrowed) != ends else None


def nested_clamps(node: Expr, at: At) -> Expr | None:
    """Two clamps in a row are one."""
    inner = node.args[0] if node.args else node
    outside, inside = limits(node), limits(inner) if node.args else None
    if outside is None or inside is None:
        return None
    low, high = (min(max(end, outside[0]), outside[1]) for end in inside)
    return inner.args[0].relu() if (low, high) == (0.0, INF) else inner.args[0].clamp(low, high)


def one_sided(node: Expr, at: At) -> Expr | None:
    """Functions with two halves, of values that lie in one."""
    if node.kind not in ("leaky_relu", "prelu", "elu", "abs", "threshold"):
        return None
    x = node.args[0]
    attributes = [float(value) for value in node.attributes]
    if node.kind == "prelu" and not at(node.args[1]).bounded and 0 in at(x):  # zero times infinity
        return None
    if at(x).low > (attributes[0] if node.kind == "threshold" else 0) or (at(x).low == 0 and node.kind != "threshold"):
        return x * attributes[1] if node.kind == "elu" else x
    if at(x).high <= 0 and not at(x).nan:
        return {"leaky_relu": lambda: x * attributes[0], "prelu": lambda: x * node.args[1], "abs": lambda: -x}.get(
            node.kind, lambda: None
        )()
    return None


def extreme(node: Expr, at: At) -> Expr | None:
    """A maximum or minimum that one side always wins; NaN on the losing side would count."""
    if node.kind not in ("maximum", "minimum"):
        return None
    for one, other in (node.args, node.args[::-1]):
        wins = at(one).low >= at(other).high if node.kind == "maximum" else at(one).high <= at(other).low
        if one is other or (wins and not at(other).nan):
            return one
    return None


def representable(value: Expr, dtype: str) -> bool:
    """Whether rounding to `dtype` does nothing: it was rounded before and only chosen from since."""
    if dtype == "float32":
        return True
    match value.kind:
        case "tensor" | "parameter" | "cast":
            return value.attributes[-1] == dtype
        case "constant":
            return ROUND[dtype](single := ROUND["float32"](float(value.attributes[0]))) == single
        case "neg" | "abs" | "maximum" | "minimum":
            return all(representable(arg, dtype) for arg in value.args)
        case "where":
            return all(representable(arg, dtype) for arg in value.args[1:])
        case "relu" | "clamp" | "hardtanh":
            ends = [constant(end) for end in limits(value) or (math.pi,)]
            return all(representable(each, dtype) for each in (value.args[0], *ends))
        case _:
            return False


def idle_cast(node: Expr, at: At) -> Expr | None:
    """Rounding what is round already; float32 is what registers hold."""
    return node.args[0] if node.kind == "cast" and representable(node.args[0], str(node.attributes[0])) else None


def nested_leaky(node: Expr, at: At) -> Expr | None:
    """leaky(leaky(x))."""
    inner = node.args[0] if node.kind == "leaky_relu" else node
    if inner is node or inner.kind != "leaky_relu" or (slope := float(inner.attributes[0])) < 0:
        return None
    return inner.args[0].leaky_relu(slope * float(node.attributes[0]))


def leaky_across_factor(node: Expr, at: At) -> Expr | None:
    """leaky(m * leaky(x)), with m the same for many elements, is piecewise linear in x: two slopes from m alone,
    which are computed once for all these elements."""
    if node.kind != "leaky_relu" or node.args[0].kind != "mul":
        return None
    outer = float(node.attributes[0])
    for inner, factor in (node.args[0].args, node.args[0].args[::-1]):
        shared = all(leaf.kind == "parameter" for leaf in inputs(factor))
        if inner.kind == "leaky_relu" and shared and (slope := float(inner.attributes[0])) >= 0:
            x = inner.args[0]
            falling = -((-factor).leaky_relu(outer) * slope)
            return x * where(x > 0, factor.leaky_relu(outer), falling)
    return None


def gated(node: Expr, at: At) -> Expr | None:
    """x * sigmoid(x), and x * tanh(softplus(x))."""
    if node.kind != "mul":
        return None
    for x, gate in (node.args, node.args[::-1]):
        if gate is x.sigmoid():
            return make("silu", (x,))
        if gate is x.softplus().tanh():
            return make("mish", (x,))
    return None


RULES = (
    Rule("constant", folded, _ONE_ROUNDING, note=_ZERO_SIGN),
    Rule("neutral element", neutral, note=_ZERO_SIGN),
    Rule("times zero", zero_product, note=_ZERO_SIGN),
    Rule("negations", negations),
    Rule("division by a power of two", exact_division),
    Rule("division by a number", division, 2 * _ONE_ROUNDING),
    Rule("whole power", power, 16 * _ONE_ROUNDING),
    Rule("choice already made", choice),
    Rule("comparison already decided", decided),
    Rule("one clamp for two", nested_clamps),
    Rule("clamp that cuts nothing off", clamped, note=_ZERO_SIGN),
    Rule("one side only", one_sided, note=_ZERO_SIGN),
    Rule("maximum that one side wins", extreme, note=_ZERO_SIGN),
    Rule("rounding what is round", idle_cast),
    Rule("one leaky_relu for two", nested_leaky, 3 * _ONE_ROUNDING, note=_RANGE_ENDS),
    Rule("leaky_relu across a factor", leaky_across_factor, 8 * _ONE_ROUNDING, note=_RANGE_ENDS),
    Rule("gate by its name", gated, 8 * _ONE_ROUNDING, note=_RANGE_ENDS),
)
"""All but the polynomials, which `simplify` puts in last."""
