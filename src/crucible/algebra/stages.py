"""Programs whose results are summed over elements, as programs that only reduce rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crucible.algebra.buffer import Buffer
from crucible.algebra.expression import substitute
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous, reads, trimmed


def stages(program: Program) -> tuple[Program, ...]:
    """The same computation in steps none of whose results `sums`. Later ones read results of earlier ones, by name:
    `partial_*` are tensors of their own, contiguous, in the program's precision.

    A sum over a whole row becomes a reduction. A sum over some rows is taken of a partial result for each row, in a
    step of its own. A sum over elements of many rows is a step of its own over the same operands; but where there are
    only such sums (the gradients of a pointwise chain), the space is turned first so that the dims of the first of
    them are the rows. Steps over the same space that do not read each other are one.
    """
    if not program.reductions and not program.column_shape:
        program = _turned(program)
    main = program
    after: dict[tuple[bool, tuple[int, ...]], Program] = {}
    for result in program.results:
        if not result.sums:
            continue
        rest = [each for each in main.results if each.name != result.name]
        per_row = program.is_per_row(result)
        if per_row:
            partial = Result(f"partial_{result.name}", program.precision, contiguous(main.row_shape), result.expr)
            step = summed_rows(main, result, partial)
            main = replace(main, results=(*rest, partial))
        else:
            main, step = _apart(replace(main, results=tuple(rest)), result)
        space = per_row, result.kept(program.row_shape if per_row else program.shape)
        after[space] = both(after[space], step) if space in after else step
    return (*((trimmed(main),) if main.results else ()), *after.values())


def partials(steps: Sequence[Program]) -> tuple[Buffer, ...]:
    """The tensors that one of the steps writes for a later one."""
    found = []
    for step in steps:
        for result in step.results:
            if result.name.startswith("partial_"):
                sizes = zip(step.shape, result.strides, strict=False)  # results of rows have no strides for columns
                found.append(Buffer(result.name, result.dtype, 1 + sum((n - 1) * stride for n, stride in sizes)))
    return tuple(found)


def both(one: Program, other: Program) -> Program:
    """Two steps over the same rows and columns as one pass: those for weight and bias of a norm."""
    operands = tuple(dict.fromkeys((*one.operands, *other.operands)))
    return replace(
        one,
        operands=operands,
        reductions=(*one.reductions, *other.reductions),
        results=(*one.results, *other.results),
    )


def _turned(program: Program) -> Program:
    """Rows are the dims that the first sum keeps; every sum that keeps no others becomes one of rows."""
    sums = [result for result in program.results if result.sums]
    if not sums:
        return program
    keep = max((result.kept(program.shape) for result in sums), key=len)
    turned = permuted(program, keep)
    found = [_of_rows(turned, result) if result.sums else (result, None) for result in turned.results]
    reductions = tuple(reduction for _, reduction in found if reduction)
    return replace(turned, reductions=reductions, results=tuple(result for result, _ in found))


def _of_rows(program: Program, result: Result) -> tuple[Result, Reduction | None]:
    if any(result.strides[program.rows :]):
        return result, None
    reduction = Reduction(f"{result.name}_row", "sum", result.expr)
    strides = result.strides[: program.rows]
    sums = any(not stride and size > 1 for stride, size in zip(strides, program.row_shape, strict=True))
    return replace(result, strides=strides, expr=reduction.leaf, sums=sums), reduction


def permuted(program: Program, keep: Sequence[int]) -> Program:
    """The space with the dims `keep` as rows and the others as columns."""
    order = [*keep, *(dim for dim in range(len(program.shape)) if dim not in keep)]

    def turn(strides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(strides[dim] for dim in order)

    operands = tuple(replace(each, strides=turn(each.strides)) for each in program.operands)
    results = tuple(replace(each, strides=turn(each.strides)) for each in program.results)
    shape = tuple(program.shape[dim] for dim in order)
    return replace(program, shape=shape, rows=len(keep), operands=operands, results=results)


def summed_rows(program: Program, result: Result, partial: Result) -> Program:
    """The step that adds up partial results of rows."""
    operand = Operand(partial.name, partial.dtype, partial.strides)
    total = Reduction(f"{result.name}_total", "sum", operand.leaf)
    whole = replace(result, expr=total.leaf, sums=False)
    space = Program(
        f"{program.name}_{result.name}",
        program.row_shape,
        program.rows,
        (operand,),
        (total,),
        (whole,),
        program.precision,
    )
    return _kept_strides(permuted(space, result.kept(program.row_shape)))


def _apart(program: Program, result: Result) -> tuple[Program, Program]:
    """What is left of the program, which now gives the reductions that the sum reads, and the sum as a step."""
    needed = [reduction for reduction in program.reductions if reduction.name in reads(result.expr)]
    given = [r for r in needed if f"partial_{r.name}" not in {each.name for each in program.results}]
    strides = contiguous(program.row_shape)
    partials = tuple(Result(f"partial_{r.name}", program.precision, strides, r.leaf) for r in given)
    columns = (0,) * len(program.column_shape)
    read = {r.leaf: Operand(f"partial_{r.name}", program.precision, strides + columns, shared=True) for r in needed}
    expr = substitute(result.expr, {leaf: operand.leaf for leaf, operand in read.items()})
    total = Reduction(f"{result.name}_total", "sum", expr)
    space = Program(
        f"{program.name}_{result.name}",
        program.shape,
        len(program.shape),
        (*program.operands, *read.values()),
        (total,),
        (replace(result, expr=total.leaf, sums=False),),
        program.precision,
    )
    step = trimmed(_kept_strides(permuted(space, result.kept(program.shape))))
    return replace(program, results=(*program.results, *partials)), step


def _kept_strides(program: Program) -> Program:
    """Results with strides along rows alone: one element for each row."""
    results = tuple(replace(each, strides=each.strides[: program.rows]) for each in program.results)
    return replace(program, results=results)
