"""Long rows that several blocks share: a kernel for each pass, and between them one that puts the parts together."""

from __future__ import annotations

from dataclasses import replace

from crucible.algebra.buffer import Buffer
from crucible.algebra.expression import Expr, substitute
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous, phases, reads, trimmed
from crucible.kinds.program.geometry import Geometry
from crucible.schedule.passes import Pass, passes


def split(program: Program, geometry: Geometry) -> tuple[list[Program], tuple[Buffer, ...]]:
    """Programs that alternate: a pass whose reductions are left in parts, then one that reduces the parts and gives
    row results. And the buffers between them.

    Parts of the reduction r are `<r>_parts`: [row][chunk] where threads go along columns, [chunk][row] where they go
    along rows. What later passes read of it is `<r>_whole`.
    """
    steps: list[Program] = []
    buffers: list[Buffer] = []
    whole: dict[Expr, Operand] = {}
    for number, step in enumerate(passes(program)):
        steps.append(_pass(program, step, number, whole))
        if step.reductions:
            finish, made = _finish(program, geometry, step, number, whole)
            steps.append(finish)
            buffers += made
    return steps, tuple(buffers)


def _pass(program: Program, step: Pass, number: int, whole: dict[Expr, Operand]) -> Program:
    known = {leaf: operand.leaf for leaf, operand in whole.items()}
    reductions = tuple(replace(r, expr=substitute(r.expr, known)) for r in step.reductions)
    results = tuple(replace(r, expr=substitute(r.expr, known)) for r in step.results)
    wanted = frozenset[str]().union(*map(reads, Pass(reductions, results).roots))
    operands = tuple(each for each in (*program.operands, *whole.values()) if each.name in wanted)
    name = f"{program.name}_pass{number + 1}" if len(passes(program)) > 1 else program.name
    return replace(program, name=name, operands=operands, reductions=reductions, results=results)


def _finish(
    program: Program, geometry: Geometry, step: Pass, number: int, whole: dict[Expr, Operand]
) -> tuple[Program, list[Buffer]]:
    """Parts become whole; `whole` takes what later passes read."""
    rows, chunks, precision = program.row_shape, geometry.chunks, program.precision
    along_rows = geometry.along == "rows"
    strides = (*contiguous(rows), program.row_count) if along_rows else (*(s * chunks for s in contiguous(rows)), 1)
    parts = [Operand(f"{r.name}_parts", precision, strides) for r in step.reductions]
    reductions = [Reduction(r.name, r.kind, p.leaf) for r, p in zip(step.reductions, parts, strict=True)]
    due = phases(program)
    ends = [r for r in program.results if program.is_per_row(r) and max(due[r.name], 1) == number + 1]
    later = _read_later(program, number)
    known = {leaf: operand.leaf for leaf, operand in whole.items()}
    ends = [replace(r, expr=substitute(r.expr, known)) for r in ends]
    kept = [r for r in step.reductions if r.name in later]
    ends += [Result(f"{r.name}_whole", precision, contiguous(rows), r.leaf) for r in kept]
    narrow = [replace(o, strides=(*o.strides[: program.rows], 0)) for o in (*program.operands, *whole.values())]
    for reduction in kept:
        laid = contiguous(rows) + (0,) * len(program.column_shape)
        whole[reduction.leaf] = Operand(f"{reduction.name}_whole", precision, laid, shared=True)
    made = [Buffer(part.name, precision, program.row_count * chunks) for part in parts]
    made += [Buffer(f"{r.name}_whole", precision, program.row_count) for r in kept]
    name = f"{program.name}_finish{number + 1}" if len(passes(program)) > 1 else f"{program.name}_finish"
    finish = Program(name, (*rows, chunks), program.rows, (*narrow, *parts), tuple(reductions), tuple(ends), precision)
    return trimmed(finish), made


def _read_later(program: Program, number: int) -> frozenset[str]:
    """What passes after this one read, and row results that they give."""
    due = phases(program)
    rest = [root for step in passes(program)[number + 1 :] for root in step.roots]
    rest += [r.expr for r in program.results if program.is_per_row(r) and due[r.name] > number + 1]
    return frozenset[str]().union(*map(reads, rest))
