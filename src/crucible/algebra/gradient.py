"""Derivatives of chains, as expressions, and the forward values that they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from crucible.algebra.expression import Attribute, Expr, constant, inputs, make, nodes, substitute, tensor
from crucible.algebra.operations import CONDITIONS, FUNCTIONS, define
from crucible.algebra.pullback import FROM_OUTPUT, RULES, Gradients, reads_output

UPSTREAM = tensor("grad")
"""The gradient of the chain's value, if no other is given."""


def derivative(expr: Expr, wrt: Expr, upstream: Expr = UPSTREAM, saved: Iterable[Expr] = ()) -> Expr:
    """The gradient of `wrt` (a tensor, a parameter or any value inside), for each element, given that of the chain.

    A parameter's is what one element adds to it: the sum over the elements that share it is the writer's. Values
    in `saved` are taken from the forward pass: their operations are differentiated from the output, where that is
    possible.
    """
    return gradients(expr, (wrt,), upstream, saved)[0]


def gradients(
    expr: Expr, wrt: Sequence[Expr], upstream: Expr = UPSTREAM, saved: Iterable[Expr] = ()
) -> tuple[Expr, ...]:
    """The gradients of several values; what they share is one expression."""
    kept, ends = frozenset(saved), frozenset(wrt)
    flowing: dict[Expr, Expr] = {expr: upstream}
    for node in reversed(list(nodes(expr))):
        if node in flowing and node.args and node.kind not in CONDITIONS:
            for arg, gradient in zip(node.args, _pull(node, flowing[node], node in kept), strict=True):
                if gradient is not None and arg.kind not in CONDITIONS:
                    flowing[arg] = flowing[arg] + gradient if arg in flowing else gradient
    missing = [end for end in ends if end not in flowing]
    return tuple(constant(0.0) if end in missing else flowing[end] for end in wrt)


def _pull(node: Expr, gradient: Expr, kept: bool) -> Gradients:
    if kept and reads_output(node):
        return FROM_OUTPUT[node.kind](gradient, node)
    if node.kind in RULES:
        return RULES[node.kind](gradient, node)
    if node.kind not in FUNCTIONS:
        raise ValueError(f"{node.kind} has no derivative")
    symbols, pulled = _by_definition(node.kind, len(node.args), node.attributes)
    given = dict(zip(symbols, (gradient, *node.args), strict=True))
    return tuple(substitute(each, given) for each in pulled)


@cache
def _by_definition(
    kind: str, count: int, attributes: tuple[Attribute, ...]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The gradients of symbols, which come with the symbol of the upstream gradient before them."""
    symbols = tuple(tensor(f"argument {i}") for i in range(count))
    definition = define(make(kind, symbols, *attributes))
    return (UPSTREAM, *symbols), gradients(definition, symbols)


def needs(expr: Expr, wrt: Sequence[Expr] | None = None, upstream: Expr = UPSTREAM) -> tuple[frozenset[Expr], ...]:
    """What to keep from the forward pass so that the gradients can be computed: alternatives, each enough by itself
    together with the parameters and the upstream gradient.

    Single values nearest to the chain's end come first: tanh(x) needs its own value, gelu(x) its argument, relu(x)
    either. The tensors that the gradients read come last; an empty set says that nothing is needed. Compute the
    gradients with `gradients(..., saved=alternative)` and put symbols for the saved values with `substitute`.
    """
    ends = tuple(wrt) if wrt is not None else inputs(expr)
    read = _tensors(gradients(expr, ends, upstream), upstream)
    if not read:
        return (frozenset(),)
    inside = [node for node in reversed(list(nodes(expr))) if node.args and _tensors((node,), upstream)]
    enough = [frozenset({node}) for node in inside if _suffices(expr, ends, upstream, node)]
    return *enough, read


def _suffices(expr: Expr, ends: Sequence[Expr], upstream: Expr, saved: Expr) -> bool:
    symbol = make("parameter", (), "saved", "float32")
    found = gradients(expr, ends, upstream, {saved})
    return not _tensors(tuple(substitute(each, {saved: symbol}) for each in found), upstream)


def _tensors(exprs: tuple[Expr, ...], upstream: Expr) -> frozenset[Expr]:
    return frozenset(leaf for leaf in inputs(*exprs) if leaf.kind == "tensor" and leaf not in inputs(upstream))
