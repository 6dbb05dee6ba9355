"""Convolutions that reduce their results over channels, for programs that would read these for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Container, MutableMapping, Sequence
from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.crossings import Crossings, crossed, crossings
from crucible.algebra.program import Program, Reduction
from crucible.gpus import Gpu
from crucible.graph import TensorType
from crucible.kinds.convolution.crossings import crossable, crossing_pays, written_bytes
from crucible.plan.steps import Fused, Step
from crucible.schedule import pays
from crucible.schedule.machine import machine_of

MOST = 2
"""Crossings of a convolution: each takes two registers of a tile."""


def with_crossings_taken(
    steps: Sequence[Step],
    types: MutableMapping[str, TensorType],
    gpu: Gpu,
    kept: Container[str],
    new_name: Callable[[str], str],
) -> tuple[Step, ...]:
    """The steps, of which convolutions reduce their results over channels for programs that then do not read these,
    where an estimate says that it pays; `types` gets what they write as well. `kept` are values that the module's
    caller gets."""
    found = list(steps)
    for place, step in enumerate(found):
        if not isinstance(step, Fused) or not isinstance(step.compute, Convolution):
            continue
        if step.aside or not crossable(step.compute):
            continue
        taking = {n: taken for n, each in enumerate(found) if (taken := _taken(each, step))}
        every = [reduction for taken in taking.values() for reduction in taken.reductions]
        unwritten = step.result not in kept and _are_all(taking, found, step.result)
        if not 0 < len(every) <= MOST or not _pays(step.compute, every, len(taking), gpu, unwritten=unwritten):
            continue
        given = {n: _named(step.result, taken, new_name) for n, taken in taking.items()}
        every = [reduction for own in given.values() for reduction in own.reductions]
        crossing = replace(step, aside=Crossings(tuple(every)), unwritten=unwritten)
        found[place] = crossing
        types.update(crossing.measured)
        for n, own in given.items():
            found[n] = _reading(found[n], step, own)
    return tuple(found)


def _taken(step: Step, of: Fused) -> Crossings | None:
    """What a program takes of a convolution's result, by the names of its reductions; None where it reads more."""
    if not isinstance(step, Fused) or not isinstance(step.compute, Program) or step.given:
        return None
    program = step.compute
    reading = [each.name for each in program.operands if step.operands[each.name] == of.result]
    if len(reading) != 1 or reading[0] in step.parts or crossed(program, reading[0], of.type.shape, ()) is None:
        return None
    return crossings(program, reading[0])


def _are_all(taking: Container[int], steps: Sequence[Step], tensor: str) -> bool:
    """Whether such programs alone read a tensor, and gradients, which read it again, are the tensor's."""
    readers = [(n, each) for n, each in enumerate(steps) if tensor in each.reads]
    return all(n in taking and is_graded_alone(each, tensor) for n, each in readers)


def is_graded_alone(step: Step, tensor: str) -> bool:
    """Whether a program's gradients are of one tensor."""
    return isinstance(step, Fused) and all(step.operands[each] == tensor for each in step.wanted)


def _named(tensor: str, taken: Crossings, new_name: Callable[[str], str]) -> Crossings:
    """By names that nothing has."""
    return Crossings(tuple(replace(each, name=new_name(f"{tensor}_{each.name}")) for each in taken.reductions))


def _reading(step: Step, of: Fused, own: Crossings) -> Fused:
    """A program that takes them."""
    assert isinstance(step, Fused) and isinstance(step.compute, Program)
    (operand,) = (each.name for each in step.compute.operands if step.operands[each.name] == of.result)
    given = crossed(step.compute, operand, of.type.shape, own.names)
    operands = {**step.operands, **{name: name for name in own.names}}
    note = f"its reductions over channels are those that {of.name} takes of {of.result} as it is written"
    return replace(step, given=given, operands=operands, notes=(*step.notes, note))


def _pays(conv: Convolution, reductions: Sequence[Reduction], readers: int, gpu: Gpu, *, unwritten: bool) -> bool:
    """Whether what the convolution does more takes less than what is spared: to read its result so often. There is a
    launch more where blocks have a part of the channels."""
    saved = readers * written_bytes(conv)
    pays_ = crossing_pays(conv, Crossings(tuple(reductions)), gpu, readers=readers, writes=not unwritten)
    return pays_ and pays.launches_pay(machine_of(gpu), 1, saved)
