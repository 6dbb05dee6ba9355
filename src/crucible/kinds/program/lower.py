"""From programs to kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crucible.algebra.program import Program, trimmed
from crucible.algebra.tidy import per_row, tidied
from crucible.kernel.verify import MOST_REGISTERS, lasting_words
from crucible.kinds.built import Built
from crucible.kinds.program.body import kernel
from crucible.kinds.program.describe import about, formulas
from crucible.kinds.program.geometry import Geometry, choose
from crucible.kinds.program.layout import crossed, ordered
from crucible.kinds.program.split import split
from crucible.print.written import Lowered


def lower(program: Program, sms: int = 132) -> Lowered:
    """What `build` builds, as text."""
    return build(program, sms).lowered()


def build(program: Program, sms: int = 132) -> Built:
    """The kernels of a program none of whose results `sums`; `stages` makes such.

    Kernels read operands and write results by their names. They are right for any strides and sizes; tensors begin at
    whole 16 bytes. Nothing is launched for a program without elements. `sms` is the number of multiprocessors to fill.
    """
    tidy = tidied(program)
    found = _built(tidy.program, sms)
    return replace(found, notes=(*found.notes, *tidy.notes))


def reads_again(program: Program, sms: int) -> bool:
    """Whether each of its passes reads elements anew, which do not stay in registers."""
    program = ordered(tidied(program).program)
    return bool(program.reductions and program.row_count) and choose(program, sms).looped


def _built(program: Program, sms: int) -> Built:
    if program.reductions:
        return _reducing(ordered(program), sms)
    results = tuple(result for result in program.results if not program.is_per_row(result))
    parts = [trimmed(replace(program, results=results))] if results else []
    of_rows = per_row(program)
    if of_rows:
        parts.append(replace(of_rows, name=f"{program.name}_rows" if parts else program.name))
    return _joined([_single(ordered(crossed(part)), sms) for part in parts])


def _reducing(program: Program, sms: int) -> Built:
    if not program.row_count:
        return Built(())
    geometry = choose(program, sms)
    if geometry.chunks == 1:
        return _kernel(program, geometry)
    steps, buffers = split(program, geometry)
    found = [_finish(step, sms) if place % 2 else _pass(step, geometry, sms) for place, step in enumerate(steps)]
    return replace(_joined(found), buffers=buffers)


def _pass(program: Program, geometry: Geometry, sms: int) -> Built:
    """In the geometry of the others; one that reduces nothing goes through shared memory where that is better."""
    if not program.reductions and not per_row(program):
        alone = ordered(crossed(program))
        own = choose(alone, sms) if alone.column_count else geometry
        if own.turned:
            return _kernel(alone, own)
    return _kernel(program, geometry)


def _finish(program: Program, sms: int) -> Built:
    """The parts of rows put together: too few to be split again."""
    laid = ordered(program)
    return _kernel(laid, choose(laid, sms, may_split=False))


def _single(program: Program, sms: int) -> Built:
    return _kernel(program, choose(program, sms)) if program.column_count else Built(())


def _kernel(program: Program, geometry: Geometry) -> Built:
    """In fewer neighbouring rows a thread where what is held for each of them would not fit in its registers: two batch
    norms with their sums, of eight bfloat16."""
    words = about(program, geometry)
    made = kernel(program, geometry, [words, *formulas(program)])
    if geometry.along == "rows" and geometry.vector > 1 and lasting_words(made) > MOST_REGISTERS:
        return _kernel(program, replace(geometry, vector=geometry.vector // 2))
    return Built((made,), (), (f"{program.name}: {words}",))


def _joined(parts: Sequence[Built]) -> Built:
    """One after the other."""
    return Built(
        tuple(kernel for part in parts for kernel in part.kernels),
        tuple(buffer for part in parts for buffer in part.buffers),
        tuple(note for part in parts for note in part.notes),
    )


def joined(parts: Sequence[Lowered]) -> Lowered:
    """One after the other."""
    return Lowered(
        tuple(kernel for part in parts for kernel in part.kernels),
        tuple(buffer for part in parts for buffer in part.buffers),
        tuple(note for part in parts for note in part.notes),
    )
