"""Products with the factors that a row shares taken together: once for a row, not for each element; and out of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crucible.algebra.expression import Expr, constant, inputs, make, name_of, nodes, number, substitute, where
from crucible.algebra.program import Program, Reduction
from crucible.algebra.tidy import is_of_rows

IsShared = Callable[[Expr], bool]
FACTORED = (
    "factors that a row shares are multiplied first, and a sum by them at its end: off by 1.2e-7 of the value for each"
)


def factored(program: Program) -> tuple[Program, tuple[str, ...]]:
    """The program with such factors in front of products and behind sums, and sums that are then the same taken once;
    and words on it, where anything changed."""
    shared = {each.name for each in program.operands if is_of_rows(each, program.rows)}
    shared |= {reduction.name for reduction in program.reductions}

    def is_shared(expr: Expr) -> bool:
        return {name_of(leaf) for leaf in inputs(expr)} <= shared

    kept: dict[tuple[str, Expr], Reduction] = {}
    known: dict[Expr, Expr] = {}
    for each in program.reductions:
        expr = gathered(substitute(each.expr, known), is_shared)
        rest, share = _split(expr, is_shared)
        if each.kind != "sum" or rest is None or share is None:
            rest, share = expr, constant(1.0)
        first = kept.setdefault((each.kind, rest), replace(each, expr=rest))
        if number(share) != 1 or first.name != each.name:
            known[each.leaf] = first.leaf if number(share) == 1 else first.leaf * share
    results = tuple(replace(r, expr=gathered(substitute(r.expr, known), is_shared)) for r in program.results)
    after = replace(program, reductions=tuple(kept.values()), results=results)
    return after, (FACTORED,) if after != program else ()


def gathered(expr: Expr, is_shared: IsShared) -> Expr:
    """The same with each product as one of what rows share and one of the rest."""
    done: dict[Expr, Expr] = {}
    for node in nodes(expr):
        same = make(node.kind, tuple(done[arg] for arg in node.args), *node.attributes)
        done[node] = _product(_under_one_mask(same), is_shared)
    return done[expr]


def _product(node: Expr, is_shared: IsShared) -> Expr:
    if node.kind not in ("mul", "neg"):
        return node
    rest, share = _split(node, is_shared)
    return node if rest is None or share is None else rest * share


def _split(expr: Expr, is_shared: IsShared) -> tuple[Expr | None, Expr | None]:
    """What is left of a product, and the factor that a row shares; None for a factor of 1."""
    if is_shared(expr):
        return None, expr
    if expr.kind == "neg":
        rest, share = _split(expr.args[0], is_shared)
        return rest, constant(-1.0) if share is None else -share
    if expr.kind != "mul":
        return expr, None
    (one, first), (other, second) = (_split(arg, is_shared) for arg in expr.args)
    return _times(one, other), _times(first, second)


def _times(one: Expr | None, other: Expr | None) -> Expr | None:
    return other if one is None else one if other is None else one * other


def _under_one_mask(node: Expr) -> Expr:
    """The sum of two values that the same condition lets through."""
    if node.kind != "add" or not all(arg.kind == "where" and number(arg.args[2]) == 0 for arg in node.args):
        return node
    (mask, one, zero), (also, other, _) = (arg.args for arg in node.args)
    return where(mask, one + other, zero) if mask is also else node
