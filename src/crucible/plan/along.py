"""Values that are written by the kernel that reads them first: a residual stream and its norm are one kernel.

What several kernels read is written once (`forks`), by a kernel of its own at first. Where the one that reads it next
goes over the same space, or one before it computes it on its way, that writes it along: one launch and one read less,
and as many in backward, where autograd would add what comes of the norm to what comes down the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from crucible.algebra.expression import substitute
from crucible.algebra.program import Operand, Program, Result
from crucible.graph import TensorType
from crucible.plan.backward import with_backward
from crucible.plan.steps import Fused, Step

MOST_COLUMNS = 8192
"""Of a row that is reduced: its elements stay in registers from pass to pass. Longer rows are read in each."""
MOST_TENSORS = 16
"""That a kernel reads and writes: each is a pointer in registers."""
Named = Callable[[Sequence[str], Sequence[Step]], str]
"""An operator's name, by the operations that it covers and the steps that there are."""


def written_along(steps: Sequence[Step], types: Mapping[str, TensorType], named: Named) -> tuple[Step, ...]:
    """The same in fewer steps."""
    found = list(steps)
    place = 0
    while place < len(found):
        for other in _others(found, place):
            both = _both(found[place], found[other], lambda covers: named(covers, found))
            if both is not None:
                found[other] = with_backward(both, types) if both.wanted else both
                del found[place]
                break
        else:
            place += 1
    return tuple(found)


def _others(steps: Sequence[Step], place: int) -> list[int]:
    """Where steps stand that may make what this one makes: the one that reads it first, and those before it that
    compute it on their way."""
    made = steps[place]
    if not (isinstance(made, Fused) and _is_plain(made)):
        return []
    reader = _first_reader(steps, place, made.results)
    before = (n for n, step in enumerate(steps[:place]) if isinstance(step, Fused) and _computes(step, made))
    return [*before, *([] if reader is None else [reader])]


def _first_reader(steps: Sequence[Step], place: int, made: Container[str]) -> int | None:
    """None where that is no kernel of this kind. What is read to make it is the same there: capture refuses whoever
    reads a buffer that changes in passing."""
    later = enumerate(steps[place + 1 :], place + 1)
    first = next(((n, step) for n, step in later if any(name in made for name in step.reads)), None)
    return first[0] if first and isinstance(first[1], Fused) and _is_plain(first[1]) else None


def _computes(step: Fused, made: Fused) -> bool:
    """Whether it reads all that is read to make this."""
    if not _is_plain(step):
        return False
    assert isinstance(step.compute, Program) and isinstance(made.compute, Program)
    return all(
        each in step.compute.operands and step.operands[each.name] == made.operands[each.name]
        for each in made.compute.operands
    )


def _is_plain(step: Fused) -> bool:
    return isinstance(step.compute, Program) and not step.updates and step.statistics is None and not step.is_copy


def _both(first: Step, second: Step, named: Callable[[Sequence[str]], str]) -> Fused | None:
    """One step that makes what both do; None where they do not go over one space alike."""
    assert isinstance(first, Fused) and isinstance(second, Fused)
    one, other = first.compute, second.compute
    assert isinstance(one, Program) and isinstance(other, Program)
    made = {each.name: each for each in one.results}
    read = {each: made[second.operands[each.name]] for each in other.operands if second.operands[each.name] in made}
    differ = bool(first.wanted) != bool(second.wanted)  # autograd takes all that a step makes for differentiable
    if differ or not (_go_alike(one, other, read) and _are_told_apart(first, second, read)):
        return None
    covers = (*first.covers, *(each for each in second.covers if each not in first.covers))
    name = named(covers)
    compute = replace(_computed(one, other, read, [*second.results]), name=f"{name}_kernel")
    operands = {each.name: second.operands.get(each.name) or first.operands[each.name] for each in compute.operands}
    wanted = tuple(each for each in operands if each in first.wanted or each in second.wanted)
    return replace(
        second, name=name, covers=covers, compute=compute, operands=operands, saved={}, backward=None, wanted=wanted,
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))), passed={},
        further={**second.further, **first.results},
    )  # fmt: skip


def _go_alike(one: Program, other: Program, read: Mapping[Operand, Result]) -> bool:
    """Whether a kernel may make what both do element by element, its tensors in one order."""
    if one.reductions or one.shape != other.shape or one.precision != other.precision:
        return False
    if len(one.operands) + len(one.results) + len(other.operands) + len(other.results) > MOST_TENSORS:
        return False
    if not read:
        laid = {each.strides for each in other.operands} | {each.strides for each in other.results}
        return all(each.strides in laid for each in one.results)
    in_registers = not other.reductions or other.column_count <= MOST_COLUMNS
    return in_registers and all(_is_whole(operand, result) for operand, result in read.items())


def _are_told_apart(first: Fused, second: Fused, read: Container[Operand]) -> bool:
    """Whether each name stands for one thing: the same operand may be read by both."""
    one, other = first.compute, second.compute
    assert isinstance(one, Program) and isinstance(other, Program)
    rest = {each.name: each for each in other.operands if each not in read}
    made = {each.name for each in other.reductions} | {each.name for each in other.results}
    own = {each.name for each in one.results}
    alike = all(
        rest[each.name] == each and second.operands[each.name] == first.operands[each.name]
        for each in one.operands
        if each.name in rest
    )
    new = {each.name for each in one.operands}
    return alike and made.isdisjoint(new) and own.isdisjoint({*made, *rest, *new})


def _computed(one: Program, other: Program, read: Mapping[Operand, Result], kept: Container[str]) -> Program:
    """The second over what the first makes, and that; without what the second keeps for backward."""
    value = {operand.leaf: result.expr for operand, result in read.items()}
    operands: dict[str, Operand] = {each.name: each for each in (*other.operands, *one.operands) if each not in read}
    results = [replace(r, expr=substitute(r.expr, value)) for r in other.results if r.name in kept]
    reductions = tuple(replace(each, expr=substitute(each.expr, value)) for each in other.reductions)
    return replace(other, operands=tuple(operands.values()), reductions=reductions, results=(*results, *one.results))


def _is_whole(operand: Operand, result: Result) -> bool:
    """Whether each element is read where it is made."""
    return operand.strides == result.strides and not operand.shared and not operand.constant
