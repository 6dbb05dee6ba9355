"""Convolutions that write moments of their results, for norms that would read these once for their statistics alone."""

from __future__ import annotations

from collections.abc import Callable, Container, MutableMapping, Sequence
from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.moments import Given, Moments, asks_for_squares, given
from crucible.algebra.program import Program
from crucible.gpus import Gpu
from crucible.graph import TensorType
from crucible.kinds.convolution import backward
from crucible.kinds.convolution.keeping import is_faster_alone
from crucible.kinds.convolution.moments import measurable, measuring_clocks
from crucible.kinds.program.lower import reads_again
from crucible.plan.crossing import is_graded_alone
from crucible.plan.steps import Fused, Step
from crucible.schedule import cost, pays
from crucible.schedule.convolution.choice import least_clocks
from crucible.schedule.machine import machine_of

MEAN, ALL = ("near", "off"), ("near", "off", "off_squared")
"""What a mean is made of; and what every sum of a polynomial of degree two is."""


def with_moments_taken(
    steps: Sequence[Step],
    types: MutableMapping[str, TensorType],
    gpu: Gpu,
    kept: Container[str],
    new_name: Callable[[str], str],
) -> tuple[Step, ...]:
    """The steps, of which convolutions write moments for programs that then read their results once less, where an
    estimate says that it pays; `types` gets these tensors as well. `kept` are values that the module's caller gets."""
    found = list(steps)
    for place, step in enumerate(found):
        if not isinstance(step, Fused) or not isinstance(step.compute, Convolution) or not measurable(step.compute):
            continue
        readers = [n for n, each in enumerate(found) if _taken(each, step, _named(step, ALL), gpu)]
        words = ALL if any(_asks_for_squares(found[n], step, gpu) for n in readers) else MEAN
        if not readers or not _pays(step.compute, _named(step, words), len(readers) * step.type.bytes, gpu):
            continue
        moments = _named(step, words, new_name)
        measuring = replace(step, aside=moments, product_alone=_is_alone(step, moments, gpu))
        found[place] = measuring
        types.update(measuring.measured)
        for n in readers:
            found[n] = _reading(found[n], step, moments, gpu)
        others = (each for each in found if step.result in each.reads)
        if step.result not in kept and all(_asks_for_sums(each, step.result) for each in others):
            found[place] = replace(measuring, unwritten=True)
    return tuple(found)


def _is_alone(step: Fused, moments: Moments, gpu: Gpu) -> bool:
    """Whether a product that is kept is written alone, and the result with its moments by a program."""
    if not step.saved or step.product_alone:
        return step.product_alone
    assert isinstance(step.compute, Convolution)
    results = backward.kept(step.compute, step.wanted, f"grad_{step.result}")
    return is_faster_alone(step.compute, results, gpu, moments)


def _asks_for_sums(step: Step, tensor: str) -> bool:
    """Whether its forward reads moments alone, and its gradients, which read the tensor, are the tensor's."""
    if not isinstance(step, Fused) or not isinstance(step.given, Given) or not isinstance(step.compute, Program):
        return False
    of_rows = all(step.compute.is_per_row(each) for each in step.compute.results)
    return of_rows and is_graded_alone(step, tensor)


def _named(step: Fused, words: Sequence[str], new_name: Callable[[str], str] = str) -> Moments:
    return Moments(tuple(new_name(f"{step.result}_{word}") for word in words))


def _taken(step: Step, of: Fused, moments: Moments, gpu: Gpu) -> Given | None:
    """How a program takes moments of a convolution's result, and is spared a pass over it; None where it does not."""
    if not isinstance(step, Fused) or not isinstance(step.compute, Program) or step.given:
        return None
    program = step.compute
    reading = [each for each in program.operands if step.operands[each.name] == of.result and not each.constant]
    if len(reading) != 1 or len({*moments.names, *step.operands}) < len(moments.names) + len(step.operands):
        return None
    found = given(program, reading[0].name, of.type.shape, moments.names)
    of_rows = all(program.is_per_row(each) for each in program.results)
    return found if found and (of_rows or reads_again(program, gpu.sms)) else None


def _asks_for_squares(step: Step, of: Fused, gpu: Gpu) -> bool:
    taken = _taken(step, of, _named(of, ALL), gpu)
    assert taken and isinstance(step, Fused) and isinstance(step.compute, Program)
    return asks_for_squares(step.compute, taken)


def _reading(step: Step, of: Fused, moments: Moments, gpu: Gpu) -> Fused:
    """A program that takes them."""
    found = _taken(step, of, moments, gpu)
    assert found is not None and isinstance(step, Fused)
    operands = {**step.operands, **{name: name for name in moments.names}}
    note = f"its first sums are made of those that {of.name} takes of {of.result} as it is written"
    return replace(step, given=found, operands=operands, notes=(*step.notes, note))


def _pays(conv: Convolution, moments: Moments, saved: int, gpu: Gpu) -> bool:
    """Whether what else the convolution does takes less than to read its result so often: `saved` bytes. There are two
    launches more than are spared."""
    alone, measuring = least_clocks(conv, gpu), measuring_clocks(conv, moments, gpu)
    if alone is None or measuring is None:
        return False
    machine = machine_of(gpu)
    return measuring - alone < cost.byte_traffic(machine, saved) and pays.launches_pay(machine, 2, saved)
