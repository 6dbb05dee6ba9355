"""How a kernel is laid out, in a sentence: its comment and the plan's note."""

from __future__ import annotations

from crucible.algebra.program import Program
from crucible.algebra.text import text
from crucible.kinds.program.geometry import Geometry
from crucible.schedule.passes import passes

LONGEST = 110


def formulas(program: Program) -> list[str]:
    """What the kernel computes, a line each; without those that are too long to say anything."""
    lines = [f"{r.name} = {'sum' if r.kind == 'sum' else 'max'} of {text(r.expr)}" for r in program.reductions]
    lines += [f"{r.name} = {text(r.expr)}" for r in program.results]
    return [line for line in lines if len(line) <= LONGEST]


def about(program: Program, geometry: Geometry) -> str:
    """Mapping and reason."""
    if not program.reductions and geometry.along == "rows":
        words = f"{program.row_count * program.column_count} elements, some of whose tensors lie in another order: a"
        words = f"{words} block takes {geometry.tile} by {geometry.block_rows}, {geometry.vector} at once"
        return words + (", and turns them round in shared memory" if geometry.turned else "")
    if not program.reductions:
        words = f"{program.column_count} elements, {geometry.packs * geometry.vector} a thread"
        return words + (f", {geometry.vector} at once" if geometry.vector > 1 else "")
    rows, columns = program.row_count, program.column_count
    space = f"{rows} row{'s' * (rows != 1)} of {columns}"
    turned = "; tensors that lie along rows are turned round in shared memory" if geometry.turned else ""
    return f"{space}: {_who(geometry)}{_how_often(program, geometry)}{turned}"


def _who(geometry: Geometry) -> str:
    if geometry.along == "rows":
        words = f"neighbours in memory are rows, so a block takes {geometry.block_rows} rows"
        words += f", {geometry.vector} a thread" if geometry.vector > 1 else ""
        words += f", and {geometry.team} groups of threads share the columns" if geometry.team > 1 else ""
    elif geometry.team < geometry.threads:
        words = f"{geometry.team} thread{'s' * (geometry.team != 1)} a row, {geometry.block_rows} rows a block"
    else:
        words = f"a block of {geometry.threads} threads a row"
    if geometry.chunks > 1:
        words += f"; rows are few and long, so {geometry.chunks} blocks share each, and their parts are added in order"
    return words


def _how_often(program: Program, geometry: Geometry) -> str:
    times = len(passes(program))
    if times == 1:
        return ""
    if geometry.looped:
        return f"; too long for registers, so memory is read {times} times"
    return "; elements stay in registers from pass to pass"
