"""Values of expressions in a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from crucible.algebra.expression import Expr, inputs, name_of
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder

Leaf = Callable[[str], ir.Element]
"""Where a tensor or parameter of expressions is, by its name."""


def inputs_of(exprs: Iterable[Expr], leaf: Leaf) -> tuple[tuple[str, ir.Element], ...]:
    """What a `Chain` of them reads."""
    names = dict.fromkeys(name_of(each) for each in inputs(*exprs))
    return tuple((name, leaf(name)) for name in names)


def computed(k: Builder, exprs: Mapping[str, Expr], leaf: Leaf, precision: str) -> dict[str, ir.Element]:
    """Values of their own, under their names; what is a leaf is read as that, and what is equal is computed once."""
    made: dict[Expr, ir.Element] = {}
    for name, expr in exprs.items():
        if expr.kind in ("tensor", "parameter"):
            made[expr] = leaf(name_of(expr))
        elif expr not in made:
            made[expr] = ir.Element(ir.Fragment(name, precision))
    results = tuple((made[expr], expr) for expr in dict.fromkeys(exprs.values()) if expr.args or not inputs(expr))
    if results:
        k.add(ir.Chain(results, inputs_of((expr for _, expr in results), leaf), precision))
    return {name: made[expr] for name, expr in exprs.items()}
