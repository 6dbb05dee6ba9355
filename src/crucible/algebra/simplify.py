"""Cheaper chains with the same values, up to errors that are stated and bounded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from crucible.algebra.exponential import MOST, by_power_of_two, by_scaled_power, error_of_power
from crucible.algebra.expression import Expr, inputs, make, nodes, parameter, substitute
from crucible.algebra.interval import Interval
from crucible.algebra.operations import cost
from crucible.algebra.polynomial import FORMS, approximate
from crucible.algebra.ranges import DEFAULTS, Bounds, enclose
from crucible.algebra.rules import RULES, At
from crucible.algebra.text import text

_SCALED = (
    "what is added is scaled beforehand, and rounded: as if it were off by 6e-8 of itself; where that overflows, the "
    "sum is infinite"
)


@dataclass(frozen=True)
class Rewrite:
    """One value that was replaced."""

    rule: str
    before: str
    after: str
    error: float
    """Largest absolute difference of the new value, as float32 computes it, from the old one, exactly: proven. 0 where
    `relative_error` says all."""
    relative_error: float
    """Largest difference, as part of the value, between both as float32 computes them."""
    note: str
    """Where else they differ."""


@dataclass(frozen=True)
class Simplified:
    """What became of some chains."""

    exprs: tuple[Expr, ...]
    rewrites: tuple[Rewrite, ...]
    """Each with the error of the value it replaced; later operations carry the errors on."""


def simplify(*exprs: Expr, bounds: Bounds | None = None, tolerance: float = 3e-7) -> Simplified:
    """The chains with all rules applied until none does, then polynomials and powers of two where they are cheaper.

    `bounds` says where tensors and parameters lie (by name). `tolerance` is the largest absolute error of what stands
    in for a function (relative where values exceed 1); 0 leaves functions as they are. Differentiate before, not after:
    derivatives at kinks may be different for the same values.
    """
    work = _Work(bounds or {}, tolerance)
    current = exprs
    while (after := work.once(current, approximating=False)) != current:
        current = after
    if tolerance:
        current = work.once(current, approximating=True)
    return Simplified(current, tuple(work.rewrites))


class _Work:
    """Intervals found and rewrites done so far."""

    def __init__(self, bounds: Bounds, tolerance: float) -> None:
        self.bounds, self.tolerance = bounds, tolerance
        self.found: dict[Expr, Interval] = {}
        self.rewrites: list[Rewrite] = []

    def at(self, expr: Expr) -> Interval:
        return enclose(expr, self.found, self.bounds)

    def once(self, exprs: tuple[Expr, ...], approximating: bool) -> tuple[Expr, ...]:
        """Every value once, arguments first."""
        done: dict[Expr, Expr] = {}
        readers = _readers(exprs)
        for node in nodes(*exprs):
            args = tuple(done[arg] for arg in node.args)
            same = node if args == node.args else make(node.kind, args, *node.attributes)
            if approximating:
                done[node] = self._approximated(same, inner=_read_once(node, readers))
            else:
                done[node] = self._rewritten(same, self.at)
        return tuple(done[expr] for expr in exprs)

    def _rewritten(self, node: Expr, at: At) -> Expr:
        for rule in RULES:
            after = rule.apply(node, at)
            if after is not None and after is not node:
                self._note(rule.name, node, after, 0.0, rule.relative_error, rule.note)
                return after
        return node

    def _approximated(self, node: Expr, inner: bool) -> Expr:
        """`inner` says that nobody else reads the argument, nor its argument."""
        if node.kind not in FORMS or node.attributes != DEFAULTS.get(node.kind, ()):
            return node
        range_ = self.at(node.args[0])
        found = None if range_.empty else approximate(node.kind, range_.low, range_.high, self.tolerance)
        after = found.of(node.args[0]) if found else node
        error = self._power_error(node, range_)
        scaled = by_scaled_power(node.args[0]) if inner else None
        power = by_power_of_two(node.args[0]) if scaled is None else scaled
        if error is not None and cost(power) < cost(after):
            self._note("power of two", node, power, error, 0.0, "" if scaled is None else _SCALED)
            return power
        if found is not None:
            self._note("polynomial", node, after, found.error, 0.0, "")
        return after

    def _power_error(self, node: Expr, range_: Interval) -> float | None:
        """Of exp as a power of two; None where it is another function, or off by more than is allowed."""
        if node.kind != "exp" or range_.empty or range_.magnitude > MOST:
            return None
        error = error_of_power(range_.low, range_.high)
        return error if error <= self.tolerance * max(1.0, self.at(node).magnitude) else None

    def _note(self, rule: str, before: Expr, after: Expr, error: float, relative: float, note: str) -> None:
        self.rewrites.append(Rewrite(rule, text(before), text(after), error, relative, note))


def _readers(exprs: tuple[Expr, ...]) -> Counter[Expr]:
    """How often each value is read, by other values and as a result."""
    return Counter([*exprs, *(arg for node in nodes(*exprs) for arg in node.args)])


def _read_once(node: Expr, readers: Counter[Expr]) -> bool:
    """Whether an operation's argument is read by it alone, and so is that one's."""
    return len(node.args) == 1 == readers[node.args[0]] and all(readers[arg] == 1 for arg in node.args[0].args)


def hoist(*exprs: Expr) -> tuple[tuple[Expr, ...], dict[str, Expr]]:
    """What parameters alone decide, taken out: the chains with new parameters `shared_0`, ..., and what these are.

    The writer computes those once for all elements that share the parameters.
    """
    leaves = {node: frozenset(leaf.kind for leaf in inputs(node)) for node in nodes(*exprs)}
    shared = [node for node in leaves if node.args and leaves[node] == {"parameter"}]
    used = {arg for node in leaves if node not in shared for arg in node.args} | set(exprs)
    taken = {node: parameter(f"shared_{i}") for i, node in enumerate(node for node in shared if node in used)}
    rest = tuple(substitute(expr, taken) for expr in exprs)
    return rest, {str(new.attributes[0]): node for node, new in taken.items()}
