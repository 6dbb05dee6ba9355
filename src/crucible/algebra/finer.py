"""Sums over parts of rows, taken once for rows and for what else is summed over the same parts.

The gradient of a group norm sums what it reads for each group of an image, and for each channel what its weight and
bias get. A channel of an image is a part of both: its sums are taken in one pass, those of groups and of channels are
made of them, and elements are read once less.
"""

from __future__ import annotations

from dataclasses import replace

from crucible.algebra.expression import substitute
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous, phases, reads, trimmed
from crucible.algebra.stages import both, permuted, summed_rows


def finer(program: Program) -> tuple[Program, ...] | None:
    """The program in steps none of whose results `sums`, as `stages` gives them; None where its rows and its sums over
    elements have no parts in common that are smaller than rows."""
    sums = [each for each in program.results if each.sums]
    due, own = phases(program), {each.name for each in program.reductions}
    first = [each for each in program.reductions if due[each.name] == 0]
    apart = [each for each in sums if not program.is_per_row(each) and not own & reads(each.expr)]
    kept = {dim for each in sums for dim in each.kept(program.shape)}
    columns = [dim for dim in range(program.rows, len(program.shape)) if dim in kept]
    if not first or not columns or apart != sums or any(each.kind != "sum" for each in first):
        return None
    if len(columns) == len(program.column_shape):
        return None
    parts = [*range(program.rows), *columns]
    cut = permuted(program, parts)
    laid = contiguous(cut.row_shape)
    at = {each.name: each for each in cut.results}
    added = [Reduction(f"{each.name}_row", "sum", each.expr) for each in sums]
    totals = [*first, *added]
    made = [Result(_partial(each), program.precision, laid, each.leaf) for each in totals]
    steps = [trimmed(replace(cut, name=f"{program.name}_parts", reductions=tuple(totals), results=tuple(made)))]
    steps += _of_rows(program, cut, first)
    after: dict[tuple[int, ...], Program] = {}
    for result, row, partial in zip(sums, added, made[len(first) :], strict=True):
        own_strides = at[result.name].strides[: cut.rows]
        step = summed_rows(cut, replace(result, strides=own_strides), replace(partial, name=_partial(row)))
        space = result.kept(program.shape)
        after[space] = both(after[space], step) if space in after else step
    return (*steps, *after.values())


def _of_rows(program: Program, cut: Program, first: list[Reduction]) -> list[Program]:
    """Sums of rows made of those of their parts; and the rest, which reads these."""
    names, strides = {each.name for each in first}, contiguous(program.row_shape)
    laid = contiguous(cut.row_shape)
    parts = {each.name: Operand(_partial(each), program.precision, laid) for each in first}
    sums = tuple(replace(each, expr=parts[each.name].leaf) for each in first)
    whole = {each.name: f"partial_{each.name}_whole" for each in first}
    results = tuple(Result(whole[each.name], program.precision, strides, each.leaf) for each in first)
    name = f"{program.name}_of_parts"
    rows = Program(name, cut.row_shape, program.rows, tuple(parts.values()), sums, results, program.precision)
    columns = (0,) * len(program.column_shape)
    read = {each.leaf: Operand(whole[each.name], program.precision, strides + columns, shared=True) for each in first}
    leaves = {leaf: operand.leaf for leaf, operand in read.items()}
    later = [replace(each, expr=substitute(each.expr, leaves)) for each in program.reductions if each.name not in names]
    rest = [replace(each, expr=substitute(each.expr, leaves)) for each in program.results if not each.sums]
    operands = (*program.operands, *read.values())
    return [rows, trimmed(replace(program, operands=operands, reductions=tuple(later), results=tuple(rest)))]


def _partial(reduction: Reduction) -> str:
    return f"partial_{reduction.name}"
