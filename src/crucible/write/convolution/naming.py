"""Tensors of a convolution by wishes for a name (`target.names`) until its kernels' texts are whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from crucible.target.names import resolved, wish, wished
from crucible.write.convolution.fused import Convolution
from crucible.write.expression import Expr, substitute
from crucible.write.kernel import Kernel, Lowered
from crucible.write.program import Operand, Reduction, Result

_Named = TypeVar("_Named", Operand, Reduction, Result)


def with_names(conv: Convolution, lower: Callable[[Convolution], Lowered]) -> Lowered:
    """What `lower` makes of it, by names that hide nothing in a kernel; outside all are called as they were."""
    made = lower(_wishing(conv))
    buffers = tuple(replace(each, name=wished(each.name)) for each in made.buffers)
    return Lowered(tuple(map(_named, made.kernels)), buffers, tuple(map(wished, made.notes)))


def _named(kernel: Kernel) -> Kernel:
    reads, writes = (tuple(map(wished, names)) for names in (kernel.reads, kernel.writes))
    return replace(kernel, text=resolved(kernel.text), reads=reads, writes=writes)


def _wishing(conv: Convolution) -> Convolution:
    read_by_chains: tuple[Operand | Reduction, ...] = (*conv.operands, *conv.reductions)
    leaves: dict[Expr, Expr] = {each.leaf: replace(each, name=wish(each.name)).leaf for each in read_by_chains}
    pool, spread = conv.pool, conv.spread

    def read(expr: Expr) -> Expr:
        return substitute(expr, leaves)

    return replace(
        conv,
        source=_called(conv.source),
        weight=_called(conv.weight),
        operands=tuple(map(_called, conv.operands)),
        results=tuple(replace(_called(each), expr=read(each.expr)) for each in conv.results),
        reductions=tuple(replace(_called(each), expr=read(each.expr)) for each in conv.reductions),
        pool=pool and replace(pool, before=read(pool.before)),
        spread=spread and replace(spread, choices=wish(spread.choices) if spread.choices else ""),
    )


def _called(each: _Named) -> _Named:
    return replace(each, name=wish(each.name))
