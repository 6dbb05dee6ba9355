"""How much of the chain before a max pool can be computed once a window instead of once an element."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.write.expression import Expr, inputs, nodes, substitute, tensor
from crucible.write.interval import Interval
from crucible.write.monotone import monotonicity
from crucible.write.operations import cost
from crucible.write.pool import Pool
from crucible.write.ranges import Bounds
from crucible.write.text import text

LARGEST, SMALLEST = tensor("the largest of the window"), tensor("the smallest of the window")
_FINITE = Interval(-3.4028234663852886e38, 3.4028234663852886e38)


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
    decides, or where f makes NaN of an infinite u, it is the larger of f(max u) and f(min u): NaN at either end
    stays. A chain that makes a number of NaN is left alone. Parameters are taken to be finite.
    """
    before = pool.before
    elements = pool.elements()
    moving = {operand.leaf for operand in pool.operands if pool.moves(operand)}
    still = {o.name: _FINITE for o in pool.operands if o.leaf not in moving}
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
    makes_nan = monotonicity(substitute(expr, {inner: symbol}), symbol, bounds).makes_nan
    ends = [substitute(expr, {inner: end}) for end in (LARGEST, SMALLEST)]
    if found.signs or makes_nan:
        return ends[0].maximum(ends[1])
    return ends[0] if found.direction == "increasing" else ends[1]


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
