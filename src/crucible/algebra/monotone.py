"""Whether a chain rises or falls with one of its inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from crucible.algebra.expression import Expr, name_of, nodes
from crucible.algebra.interval import Interval
from crucible.algebra.operations import CONDITIONS, FUNCTIONS, Direction, define
from crucible.algebra.ranges import Bounds, interval, intervals, shape_of


@dataclass(frozen=True)
class Monotonicity:
    """How a value goes with an input, all else fixed, in exact arithmetic.

    A maximum over u of f(u) is f(maximum of u) where f is increasing, f(minimum of u) where it is decreasing. Values
    are then the same but for the rounding of f; NaN in u stays NaN if `keeps_nan`. Gradients go to an element with
    the largest value either way, but it may be another one where several are the largest: everywhere if not `strict`
    (a clamp ties all that it cuts off), and where two different u give one float32 if it is.
    """

    direction: Literal["increasing", "decreasing", "constant", "unknown"]
    strict: bool = False
    """Different inputs give different values."""
    signs: tuple[Expr, ...] = ()
    """The direction holds where the product of these is positive; it is the opposite where that is negative, and the
    value is constant where it is zero (`strict` speaks of the other places)."""
    keeps_nan: bool = True
    """NaN as the input makes the value NaN."""
    makes_nan: bool = False
    """The value can be NaN for an input that is not (infinity times zero, say), or a parameter's NaN."""

    @property
    def known(self) -> bool:
        """Increasing, decreasing or constant, or which of them a sign tells."""
        return self.direction != "unknown"


UNKNOWN = Monotonicity("unknown", keeps_nan=False)
CONSTANT = Monotonicity("constant", keeps_nan=False)
IDENTITY = Monotonicity("increasing", strict=True)
_RISING = frozenset(
    {"add", "maximum", "minimum", "exp", "exp2_approx", "expm1", "log", "log1p", "sqrt", "erf", "tanh", "cast"}
)
_LOOSE = frozenset({"maximum", "minimum", "cast"})
_FORGETS_NAN = CONDITIONS | {"where", "pow"}


def monotonicity(expr: Expr, of: Expr, bounds: Bounds | None = None) -> Monotonicity:
    """How the value of `expr` goes with the tensor, parameter or inner value `of`, with inputs within `bounds`."""
    ranges = intervals((expr,), bounds)
    found = _follow(expr, of, ranges)
    numbers = Interval(ranges[of].low, ranges[of].high) if of in ranges else None
    if numbers is None or of.args:
        return replace(found, makes_nan=ranges[expr].nan)
    return replace(found, makes_nan=interval(expr, {**(bounds or {}), name_of(of): numbers}).nan)


def _follow(expr: Expr, of: Expr, ranges: dict[Expr, Interval]) -> Monotonicity:
    found: dict[Expr, Monotonicity] = {of: IDENTITY}
    for node in nodes(expr):
        if node not in found:
            found[node] = _of_node(node, [found[arg] for arg in node.args], ranges)
    return found[expr]


def _of_node(node: Expr, args: list[Monotonicity], ranges: dict[Expr, Interval]) -> Monotonicity:
    moving = [i for i, arg in enumerate(args) if arg is not CONSTANT]
    if not moving:
        return CONSTANT
    if node.kind in FUNCTIONS:  # they hand on the NaN of their first argument
        keeps_nan = args[0].keeps_nan and 0 in moving and node.kind != "sign"
        return replace(_of_function(node, args, moving, ranges), keeps_nan=keeps_nan)
    keeps_nan = node.kind not in _FORGETS_NAN and any(args[i].keeps_nan for i in moving)
    return replace(_composed(node, args, moving, ranges), keeps_nan=keeps_nan)


def _of_function(node: Expr, args: list[Monotonicity], moving: list[int], ranges: dict[Expr, Interval]) -> Monotonicity:
    if shape_of(node) is not None or node.kind == "prelu":
        return _composed(node, args, moving, ranges)
    definition = define(node)
    found = dict(zip(node.args, args, strict=True))
    for each in nodes(definition):
        if each not in found:
            found[each] = _of_node(each, [found[arg] for arg in each.args], ranges)
    return found[definition]


def _composed(node: Expr, args: list[Monotonicity], moving: list[int], ranges: dict[Expr, Interval]) -> Monotonicity:
    steps = [_step(node, i, ranges) for i in moving]
    if len(steps) > 1 and any(step.signs for step in steps):  # the sign moves too
        return UNKNOWN
    return _together([_then(args[i], step) for i, step in zip(moving, steps, strict=True)])


def _step(node: Expr, position: int, ranges: dict[Expr, Interval]) -> Monotonicity:
    """How an operation goes with one argument, the others fixed."""
    argument = ranges[node.args[position]]
    if (form := shape_of(node)) is not None:
        begins = -float("inf")
        directions: list[Direction] = []
        for piece in form.pieces:
            if argument.low < piece.end and begins < argument.high:
                directions.append(piece.direction)
            begins = piece.end
        return _joined(directions)
    others = [arg for i, arg in enumerate(node.args) if i != position]
    match node.kind:
        case kind if kind in _RISING:
            return Monotonicity("increasing", strict=kind not in _LOOSE)
        case "sub":
            return Monotonicity("decreasing" if position else "increasing", strict=True)
        case "neg" | "rsqrt":
            return Monotonicity("decreasing", strict=True)
        case "mul":
            return _scaled(others[0], ranges[others[0]])
        case "fma":
            return IDENTITY if position == 2 else _scaled(others[0], ranges[others[0]])
        case "div" if position == 0:
            return _scaled(others[0], ranges[others[0]])
        case "reciprocal" if argument.low > 0 or argument.high < 0:
            return Monotonicity("decreasing", strict=True)
        case "abs" if argument.low >= 0 or argument.high <= 0:
            return Monotonicity("increasing" if argument.low >= 0 else "decreasing", strict=True)
        case "pow" if position == 0 and argument.low > 0 and ranges[others[0]].low > 0:
            return Monotonicity("increasing", strict=True)
        case "where" if position > 0:
            return Monotonicity("increasing")
        case "prelu" if position == 0 and ranges[others[0]].low >= 0:
            return Monotonicity("increasing", strict=ranges[others[0]].low > 0)
        case _:
            return UNKNOWN


def _joined(directions: list[Direction]) -> Monotonicity:
    moving = {direction for direction in directions if direction != "constant"}
    if len(moving) > 1:
        return UNKNOWN
    strict = "constant" not in directions
    return Monotonicity(
        "increasing" if "increasing" in moving else "decreasing" if moving else "constant", strict and bool(moving)
    )


def _scaled(factor: Expr, range_: Interval) -> Monotonicity:
    """Multiplied by, or divided by, something that does not change."""
    if range_.low > 0 or range_.high < 0:
        return Monotonicity("increasing" if range_.low > 0 else "decreasing", strict=True)
    if range_.low >= 0 or range_.high <= 0:
        return Monotonicity("increasing" if range_.low >= 0 else "decreasing")
    return Monotonicity("increasing", strict=True, signs=(factor,))


def _then(inner: Monotonicity, outer: Monotonicity) -> Monotonicity:
    """One after the other."""
    if not (inner.known and outer.known):
        return UNKNOWN
    strict, signs = inner.strict and outer.strict, inner.signs + outer.signs
    if "constant" in (inner.direction, outer.direction):
        return Monotonicity("constant")
    return Monotonicity("increasing" if inner.direction == outer.direction else "decreasing", strict, signs)


def _together(steps: list[Monotonicity]) -> Monotonicity:
    """Through several arguments at once."""
    first, *rest = steps
    for step in rest:
        if "constant" in (first.direction, step.direction):
            first = first if step.direction == "constant" else step
        elif first.known and step.known and (first.direction, first.signs) == (step.direction, step.signs):
            first = replace(first, strict=first.strict or step.strict)
        else:
            return UNKNOWN
    return first
