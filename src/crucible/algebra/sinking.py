"""How much of the chain before a max pool can be computed once a window instead of once an element."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crucible.algebra.expression import Expr, inputs, nodes, substitute, tensor
from crucible.algebra.interval import Interval
from crucible.algebra.monotone import monotonicity
from crucible.algebra.operations import cost, lowered
from crucible.algebra.pool import Pool
from crucible.algebra.ranges import Bounds, interval, intervals
from crucible.algebra.simplify import hoist
from crucible.algebra.text import text

LARGEST, SMALLEST = tensor("the largest of the window"), tensor("the smallest of the window")
MOST = 1e18
MODERATE = Interval(-MOST, MOST)
"""Parameters of which no bounds are known: products of two are still no infinity."""


@dataclass(frozen=True)
class Sunk:
    """A max pool as extremes of one value over the window, and its own value of those."""

    inner: Expr
    """Of each element; read from memory, or computed."""
    pooled: Expr
    """The pool's value, of LARGEST or SMALLEST of `inner` over the window, or of both."""
    note: str
    """What was done and why, a sentence."""

    @property
    def ends(self) -> tuple[Expr, ...]:
        """Which of the extremes are read."""
        return tuple(end for end in (LARGEST, SMALLEST) if end in inputs(self.pooled))


def sink(pool: Pool, bounds: Bounds | None = None) -> Sunk:
    """The cheapest way that gives the same values, but for roundings inside of the chain.

    A chain f that only rises has max f(u) = f(max u), one that only falls f(min u). Where a sign that is not known
    decides, or where f makes NaN of the largest or smallest u (infinity times zero, a root of a negative number), it
    is the larger of f(max u) and f(min u), which has that NaN. Left alone is a chain that makes a number of NaN, or
    NaN of a u in between (0 / 0, zero times an infinite factor), or that jumps at -0. Parameters without `bounds` are
    taken to be numbers up to 1e18.
    """
    before = pool.before
    elements = pool.elements()
    moving = {operand.leaf for operand in pool.operands if pool.moves(operand)}
    still = {o.name: MODERATE for o in pool.operands if o.leaf not in moving}
    known = {**still, **(bounds or {})}
    best = Sunk(before, LARGEST, _left_alone(before))
    least = cost(before) * elements
    for inner in nodes(before):
        if inner is before or not moving.intersection(inputs(inner)) or moving & _beside(before, inner):
            continue
        pooled = _outside(before, inner, known)
        if pooled is not None and (total := cost(inner) * elements + cost(pooled)) < least:
            best, least = Sunk(inner, pooled, _note(before, inner, pooled)), total
    return best


def _beside(expr: Expr, inner: Expr) -> set[Expr]:
    """What the value depends on other than through `inner`."""
    return set(inputs(substitute(expr, {inner: LARGEST})))


def _outside(expr: Expr, inner: Expr, bounds: Bounds) -> Expr | None:
    found = monotonicity(expr, inner, bounds)
    if not found.known or found.direction == "constant" or not found.keeps_nan:
        return None
    # f's own NaN, not that of an inner value that is NaN: as if inner were any number
    symbol = tensor("any number")
    function = substitute(expr, {inner: symbol})
    if breaks_between(function, symbol, bounds):
        return None
    makes_nan = monotonicity(function, symbol, bounds).makes_nan
    ends = [substitute(expr, {inner: end}) for end in (LARGEST, SMALLEST)]
    if found.signs or makes_nan:
        return ends[0].maximum(ends[1])
    return ends[0] if found.direction == "increasing" else ends[1]


def breaks_between(function: Expr, symbol: Expr, bounds: Bounds) -> bool:
    """Whether f may be NaN of some u while it is a number of a smaller and of a larger one. Sums have NaN of infinite u
    alone, roots and logarithms of all below some u; products have it where one factor is infinite and the other 0.
    Or whether it jumps at zero: 1 / sqrt(-0) is minus infinity."""
    (rest,), shared = hoist(function)
    own = {name: interval(expr, bounds) for name, expr in shared.items()}
    ranges = intervals((lowered(rest),), {**bounds, **own})
    moving = {node for node in ranges if symbol in inputs(node)}
    for node in moving:
        if node.kind == "rsqrt" and ranges[node.args[0]].low <= 0:
            return True
        still = [ranges[arg] for arg in node.args[:2] if arg not in moving]
        if still and node.kind in ("mul", "fma") and not _finite(still[0]):
            return True
        if still and node.kind == "div" and node.args[0] in moving and still[0].low <= 0 <= still[0].high:
            return True
    return False


def _finite(range_: Interval) -> bool:
    return math.isfinite(range_.low) and math.isfinite(range_.high)


def _note(before: Expr, inner: Expr, pooled: Expr) -> str:
    chain = text(substitute(before, {inner: tensor("u")}))
    ends = inputs(pooled)
    if LARGEST in ends and SMALLEST in ends:
        reason = "only rises or only falls with u, by the sign of a parameter: it is computed at both ends of a window"
    else:
        way, end = ("rises", "largest") if LARGEST in ends else ("falls", "smallest")
        reason = f"only {way} with u: it is computed once a window, of the {end} u"
    where = "" if not inner.args else f", where u = {text(inner)}"
    return f"{chain} {reason}{where}."


def _left_alone(before: Expr) -> str:
    if not before.args:
        return "The values are pooled as they are stored."
    return f"{text(before)} is computed for every element: it is not known to only rise or only fall."
