"""Buffers that change in forward, as they were before: what learns and reads one may read it once more in backward.

Eager PyTorch keeps what backward needs of them while it writes to them (of a moving mean, a difference from it). Here
new values are copied into buffers behind the steps, and autograd refuses to go back over what has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from crucible.algebra.program import Program
from crucible.graph import Operation, Ref, Value, unused
from crucible.plan.steps import Call, Fused, Plan, Step


def with_buffers_as_before(plan: Plan) -> Plan:
    """The plan, whose steps that learn read copies of buffers that change."""
    changed = {mutation.buffer for mutation in plan.graph.mutations}
    changed |= {buffer for step in plan.steps if isinstance(step, Fused) for buffer in step.updates.values()}
    read = dict.fromkeys(name for step in plan.steps for name in _kept(step, plan) if name in changed)
    if not read:
        return plan
    taken, copies, names = {*plan.types, *plan.graph.values}, [], dict[str, str]()
    for buffer in read:
        names[buffer] = unused(f"{buffer}_before", taken)
        copies.append(_copy(names[buffer], buffer, plan))
    steps = (*copies, *(_reading(step, names, plan) for step in plan.steps))
    return replace(plan, steps=steps, types={**plan.types, **{new: plan.types[old] for old, new in names.items()}})


def _kept(step: Step, plan: Plan) -> Iterator[str]:
    """Floating tensors that a kernel reads and may read again in backward. What a call of PyTorch keeps, it keeps in
    eager too."""
    if isinstance(step, Fused):
        yield from (name for name in _again(step) if plan.types[name].is_floating)


def _again(step: Fused) -> Iterator[str]:
    if isinstance(step.compute, Program):
        backward = step.backward.operands if step.backward is not None else ()
        yield from (step.operands[each.name] for each in backward if each.name in step.operands)
    elif step.wanted and not step.updates:
        yield from step.reads


def _reading(step: Step, names: Mapping[str, str], plan: Plan) -> Step:
    own = {name: names[name] for name in _kept(step, plan) if name in names}
    if not own or isinstance(step, Call):
        return step
    return replace(step, operands={operand: own.get(held, held) for operand, held in step.operands.items()})


def _copy(name: str, buffer: str, plan: Plan) -> Call:
    value = Value(name, plan.types[buffer])
    args = {"self": Ref(buffer), "memory_format": None}
    moved = 2 * value.tensor.bytes
    operation = Operation(name, "clone", "aten.clone.default", args, (value,), "", 0, moved)
    return Call(operation, (name,), "what learns reads it as it was before forward changes it")
