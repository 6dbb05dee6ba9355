"""Tensors on which a kernel depends and that it does not read.

What is one number for all finite inputs has gradients all the same: zeros. In the graph each tensor that it came from
gives it the sum of none of its elements, which PyTorch computes by a view, a slice and a sum; a kernel then reads a
zero for each, and backward the whole gradient to add up what autograd spreads over no element. A kernel that takes the
tensor itself, and reads none of it, is a fill, and backward makes the zeros alone.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from crucible.algebra.expression import Expr, constant
from crucible.algebra.program import Operand, Program
from crucible.graph import Graph, TensorType
from crucible.plan import rules
from crucible.plan.backward import substituted, with_backward
from crucible.plan.steps import Fused, Step

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
"""Of tensors that have gradients, and of sums that are 0."""


def with_empty_sums_unread(
    steps: Sequence[Step], types: Mapping[str, TensorType], graph: Graph, kept: Container[str]
) -> tuple[Step, ...]:
    """The steps, of which programs take tensors in the place of sums of none of their elements; without what nothing
    reads any more. `kept` are values that the module's caller gets, or buffers."""
    outside = (*graph.inputs, *(each.value for each in graph.parameters), *(each.value for each in graph.constants))
    made = {value.name for value in outside}
    found: list[Step] = []
    passed: set[str] = set()
    for step in steps:
        sums = _empty_sums(step, made, types, graph)
        found.append(_unread(step, sums, types) if isinstance(step, Fused) and sums else step)
        passed = passed.union(*(each.passed for each in sums.values()))
        made |= {*step.names}
    return _without_unread(found, passed, kept)


@dataclass(frozen=True)
class _EmptySum:
    """What an operand is, that is 0."""

    of: str
    """The tensor in memory, none of whose elements it is the sum of."""
    passed: tuple[str, ...]
    """The values from there to the operand."""


def _empty_sums(
    step: Step, made: Container[str], types: Mapping[str, TensorType], graph: Graph
) -> dict[str, _EmptySum]:
    """Of a program's operands those that are such sums, of tensors that were `made` before."""
    if not isinstance(step, Fused) or not isinstance(step.compute, Program) or step.is_copy:
        return {}
    pairs = ((name, _empty_sum(held, made, types, graph)) for name, held in step.operands.items())
    return {name: found for name, found in pairs if found is not None and name not in step.parts}


def _empty_sum(name: str, made: Container[str], types: Mapping[str, TensorType], graph: Graph) -> _EmptySum | None:
    """The tensor that is farthest back: views of it, and slices, have none of what it has not."""
    passed, found, is_sum = [name], None, False
    while (producer := graph.producers.get(passed[-1])) is not None:
        if producer.kind == "sum" and not is_sum:
            is_sum = all(not graph.values[each].tensor.elements for each in producer.inputs)
        elif producer.kind != ("slice" if is_sum else "to") and not (is_sum and rules.is_view(producer.kind)):
            break
        passed.append(producer.inputs[0])
        if is_sum and passed[-1] in made and types[passed[-1]].dtype in FLOATS:
            found = _EmptySum(passed[-1], tuple(passed[:-1]))
    return found if found is not None and types[name].dtype in FLOATS else None


def _unread(step: Fused, sums: Mapping[str, _EmptySum], types: Mapping[str, TensorType]) -> Fused:
    """The step with 0 for the sums, which takes the tensors themselves."""
    program = step.compute
    assert isinstance(program, Program)
    zeros: dict[Expr, Expr] = {each.leaf: constant(0.0) for each in program.operands if each.name in sums}
    operands = [_taken(each, types[sums[each.name].of]) if each.name in sums else each for each in program.operands]
    compute = substituted(replace(program, operands=tuple(operands)), zeros)
    held = {name: sums[name].of if name in sums else tensor for name, tensor in step.operands.items()}
    step = replace(step, compute=compute, operands=held)
    return with_backward(step, types) if step.wanted else step


def _taken(operand: Operand, type_: TensorType) -> Operand:
    """The operand for a tensor that nothing is read of: all elements share the one that would be."""
    return replace(operand, dtype=type_.dtype, strides=(0,) * len(operand.strides), shared=True, bounds=None, start=0)


def _without_unread(steps: Sequence[Step], passed: Container[str], kept: Container[str]) -> tuple[Step, ...]:
    """Without steps that made what was passed by alone, which nothing else reads."""
    found: list[Step] = []
    read: set[str] = set()
    for step in reversed(steps):
        gone = all(name in passed and name not in read and name not in kept for name in step.names)
        if not gone or (isinstance(step, Fused) and step.updates):
            found.append(step)
            read |= {*step.reads}
    return tuple(reversed(found))
