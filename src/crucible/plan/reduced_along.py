"""Reductions of a tensor that read one another's results, in one kernel: a mean, and the variance around it.

Each is a tensor of its own where several read it. Apart, each goes over the tensor once, and in backward each makes a
gradient of its size, which autograd then adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from crucible.algebra.expression import Expr, substitute
from crucible.algebra.program import Operand, Program, reads
from crucible.graph import TensorType
from crucible.plan.backward import with_backward
from crucible.plan.steps import Fused, Step

Named = Callable[[Sequence[str], Sequence[Step]], str]
"""An operator's name, by the operations that it covers and the steps that there are."""


def reduced_along(steps: Sequence[Step], types: Mapping[str, TensorType], named: Named) -> tuple[Step, ...]:
    """The same in fewer steps."""
    found = list(steps)
    place = 0
    while place < len(found):
        reader = _reader(found, place)
        both = None if reader is None else _both(found[place], found[reader])
        if both is None or reader is None:
            place += 1
            continue
        name = named(both.covers, found)
        both = replace(both, name=name, compute=replace(both.compute, name=f"{name}_kernel"))
        found[place] = with_backward(both, types)
        del found[reader]
    return tuple(found)


def _reader(steps: Sequence[Step], place: int) -> int | None:
    """The next step that reads what one reduces, and what is reduced; nothing that it reads is made in between."""
    step = steps[place]
    if not _reduces(step):
        return None
    assert isinstance(step, Fused)
    for n, other in enumerate(steps[place + 1 :], place + 1):
        if step.result in other.reads and _reduces(other):
            made = {name for each in steps[place + 1 : n] for name in each.names}
            return None if made & {*other.reads} else n
    return None


def _reduces(step: Step) -> bool:
    """Whether it makes one number a row, and nothing else."""
    if not isinstance(step, Fused) or not isinstance(step.compute, Program) or not step.wanted:
        return False
    program, beside = step.compute, step.updates or step.further or step.again or step.parts or step.statistics
    made = [each for each in program.results if each.name == step.result]
    return not beside and bool(program.reductions) and len(made) == 1 and program.is_per_row(made[0])


def _both(first: Step, second: Step) -> Fused | None:
    """One step for both, where the second takes no gradient to what the first makes; None where they do not go over
    one tensor alike, and where a name stands for two things."""
    assert isinstance(first, Fused) and isinstance(second, Fused)
    assert isinstance(first.compute, Program) and isinstance(second.compute, Program)
    other = second.compute
    one = refined(first.compute, other.shape)
    read = [each for each in other.operands if second.operands[each.name] == first.result]
    if one is None or one.rows != other.rows or one.precision != other.precision or not all(o.constant for o in read):
        return None
    rest = [each for each in other.operands if each not in read]
    if not {first.operands[each.name] for each in one.operands} & {second.operands[each.name] for each in rest}:
        return None
    made = next(each for each in one.results if each.name == first.result)
    if any(each.strides[: other.rows] != made.strides for each in read):
        return None
    same = {each.leaf: own.leaf for each in one.operands for own in rest if _is_same(each, first, own, second)}
    taken = {each.name for of in (rest, other.reductions, other.results) for each in of}
    if taken & _new(one, same):
        return None
    return _joined(first, second, one, rest, {each.leaf: made.expr for each in read}, same)


def _is_same(one: Operand, first: Fused, other: Operand, second: Fused) -> bool:
    return first.operands[one.name] == second.operands[other.name] and replace(one, name=other.name) == other


def _new(one: Program, same: Mapping[Expr, Expr]) -> set[str]:
    """What the first has that the second does not."""
    own = {each.name for each in one.operands if each.leaf not in same}
    return own | {each.name for each in one.reductions} | {each.name for each in one.results}


def _joined(
    first: Fused, second: Fused, one: Program, rest: Sequence[Operand], read: Mapping[Expr, Expr],
    same: Mapping[Expr, Expr],
) -> Fused:  # fmt: skip
    other = second.compute
    assert isinstance(other, Program)
    operands = (*rest, *(each for each in one.operands if each.leaf not in same))
    before = tuple(replace(each, expr=substitute(each.expr, same)) for each in one.reductions)
    value = {leaf: substitute(expr, same) for leaf, expr in read.items()}
    still = frozenset(each.name for each in before)
    behind = tuple(
        replace(
            each, expr=substitute(each.expr, value), still=each.still | (still & reads(substitute(each.expr, value)))
        )
        for each in other.reductions
    )
    results = [replace(each, expr=substitute(each.expr, value)) for each in other.results if each.name == second.result]
    results += [replace(each, expr=substitute(each.expr, same)) for each in one.results if each.name == first.result]
    program = replace(other, operands=operands, reductions=(*before, *behind), results=tuple(results))
    held = {**first.operands, **second.operands}
    operand_names = [each.name for each in operands]
    wanted = tuple(name for name in operand_names if name in second.wanted or name in first.wanted)
    return replace(
        second, covers=tuple(dict.fromkeys((*first.covers, *second.covers))), compute=program,
        operands={name: held[name] for name in operand_names}, saved={}, backward=None, wanted=wanted, passed={},
        notes=tuple(dict.fromkeys((*first.notes, *second.notes))), further=first.results,
    )  # fmt: skip


def refined(program: Program, shape: Sequence[int]) -> Program | None:
    """The program over a space whose dims are its own, some of them in several; None where they are not."""
    cuts: list[list[int]] = []
    sizes = list(shape)
    for size in program.shape:
        part, whole = list[int](), 1
        while sizes and (whole < size or (not part and whole == size)):
            part.append(sizes.pop(0))
            whole *= part[-1]
        if whole != size:
            return None
        cuts.append(part)
    if sizes:
        return None

    def cut(strides: tuple[int, ...]) -> tuple[int, ...]:
        found = list[int]()
        for part, stride in zip(cuts, strides, strict=False):
            steps = [stride]
            for size in reversed(part[1:]):
                steps.insert(0, steps[0] * size)
            found += steps
        return tuple(found)

    rows = sum(len(part) for part in cuts[: program.rows])
    return replace(
        program, shape=tuple(shape), rows=rows,
        operands=tuple(replace(each, strides=cut(each.strides)) for each in program.operands),
        results=tuple(replace(each, strides=cut(each.strides)) for each in program.results),
    )  # fmt: skip
