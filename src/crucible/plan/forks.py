"""Values that several kernels read, and what it costs them to compute such a value each for itself.

A residual stream is the case: each block adds to it, and each norm reads it. If nobody writes it down, the norm of the
n-th block reads what n blocks added, and its gradient goes to all of these, where autograd adds up what came of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from crucible.graph import Graph, Operation
from crucible.plan.lazy import Convolving, Lazy
from crucible.schedule import pays
from crucible.schedule.machine import Machine


def is_costly(value: Lazy, machine: Machine) -> bool:
    """Whether it takes more to compute the value again than to read it."""
    if isinstance(value.base, Convolving):  # what is convolved again is counted where the plan is whole
        return False
    elements = math.prod(value.shape)
    if value.reductions:
        return not value.per_row
    full = [o for o in value.operands if 2 * _elements(value, o.strides) > elements]
    return not pays.reading_pays(machine, len({value.tensors.get(o.name, o.name) for o in full}))


def _elements(value: Lazy, strides: tuple[int, ...]) -> int:
    return math.prod(size for size, stride in zip(value.space, strides, strict=True) if stride)


def goes_apart(graph: Graph, name: str, joins_kernels: Callable[[Operation], bool]) -> bool:
    """Whether what reads a value ends in more than one tensor in memory. Where all who read it meet again in one kernel
    (`joins_kernels` says what goes into any), it is computed once anyway."""
    if name in graph.outputs or len(graph.readers(name)) < 2:
        return False
    ends: set[str] = set()
    seen, pending = {name}, [name]
    while pending and len(ends) < 2:
        at = pending.pop()
        readers = graph.readers(at)
        if at in graph.outputs or not all(map(joins_kernels, readers)):
            ends.add(at)
            if at == name:  # it is written for PyTorch, in the layout which that wants
                return False
            continue
        made = [reader.outputs[0].name for reader in readers]
        pending += [each for each in made if each not in seen]
        seen.update(made)
    return len(ends) > 1
