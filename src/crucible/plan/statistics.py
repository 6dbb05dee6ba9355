"""What rows of a value share, computed before the kernel that reads it: where that is a pool, which reduces nothing."""

from __future__ import annotations

from dataclasses import replace

from crucible.algebra.adjoint import saving
from crucible.algebra.expression import Expr, inputs, name_of, parameter, substitute
from crucible.algebra.program import Operand, Program, Result, contiguous, reads
from crucible.plan.lazy import Lazy
from crucible.plan.settle import programmed
from crucible.schedule.passes import hoisted


def apart(value: Lazy, name: str, precision: str) -> tuple[Lazy, Program]:
    """The value as it is computed from numbers that rows share, which become operands `row_*`; and the program that
    makes these, with the value's updates and its reductions (`saved_*`, for its own gradient)."""
    expr, shared = _shared(value, name)
    rows = [d for d in range(len(value.space)) if d not in value.columns]
    dense = contiguous([value.space[d] for d in rows])
    laid = dict(zip(rows, dense, strict=True))
    strides = tuple(laid.get(d, 0) for d in range(len(value.space)))
    fixed = {o.name for o in value.operands if o.constant}
    operands = {row: Operand(row, precision, strides, constant=reads(what) <= fixed) for row, what in shared.items()}
    results = [Result(row, precision, dense, what) for row, what in shared.items()]
    program = programmed(value, f"{name}_statistics", [*rows, *sorted(value.columns)], results)
    slim = replace(
        value,
        operands=(*value.operands, *operands.values()),
        expr=substitute(expr, {parameter(row): operand.leaf for row, operand in operands.items()}),
        columns=frozenset(),
        reductions=(),
        updates=(),
    )
    return slim, saving(program, [reduction.name for reduction in program.reductions])


def _shared(value: Lazy, name: str) -> tuple[Expr, dict[str, Expr]]:
    """The value's expression as it reads what rows share, and what that is."""
    reductions = {reduction.name: reduction.leaf for reduction in value.reductions}
    still = {o.name for o in value.operands if not any(o.strides[d] for d in value.columns)}
    taken = {name, *reductions, *value.tensors, *value.tensors.values()}
    (expr,), found = hoisted((value.expr,), frozenset(still | reductions.keys()), taken)
    bare = {f"row_{name_of(leaf)}": leaf for leaf in inputs(expr) if reductions.get(name_of(leaf)) is leaf}
    return substitute(expr, {leaf: parameter(row) for row, leaf in bare.items()}), found | bare
