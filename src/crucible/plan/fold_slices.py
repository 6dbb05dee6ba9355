"""Slices of what a function makes element by element are taken of its operands: what reads them goes on from these.

The gates of a recurrent cell are the sum of two products, cut in four: one kernel adds, another reads the four parts,
where one could do both. Only of operands that lie in memory anyway, and where kernels read all parts (`within.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crucible.graph import Argument, Graph, Operation, Ref, Value, unused
from crucible.plan import layouts
from crucible.plan.parts import SLICES, sliced
from crucible.plan.rules import is_fusable, is_view
from crucible.plan.steps import Part
from crucible.plan.vocabulary import BROADCAST

IsOurs = Callable[[Operation], bool]
"""Whether kernels of ours compute a product, and what is behind it."""


def with_slices_in_front(graph: Graph, is_ours: IsOurs) -> Graph:
    """The graph, with slices of operands in the place of slices of results."""
    while True:
        taken = {*graph.values, *(each.name for each in graph.operations)}
        put: dict[str, list[Operation]] = {}
        for operation in graph.operations:
            source = _source(operation, graph, is_ours)
            if source is not None and source.name not in put:
                put |= {operation.name: _in_front(graph, operation, source, taken), source.name: []}
        if not put:
            return graph
        operations = (new for each in graph.operations for new in put.get(each.name, [each]))
        graph = replace(graph, operations=tuple(operations))


def _source(operation: Operation, graph: Graph, is_ours: IsOurs) -> Operation | None:
    """What makes what is sliced, for this alone; None where it is no such function."""
    if operation.kind not in SLICES or len(operation.outputs) < 2:
        return None
    name = operation.inputs[0]
    source = graph.producers.get(name)
    if source is None or source.kind not in BROADCAST or source.draws or graph.is_seen(name):
        return None
    if len(graph.readers(name)) > 1 or not source.output.tensor.is_floating:
        return None
    parts = sliced(operation, source.output.tensor.shape)
    if not all(
        _lies_in_memory(graph, each, is_ours) and _is_sliced(graph, source, each, parts) for each in source.inputs
    ):
        return None
    readers = [graph.readers(output.name) for output in operation.outputs]
    is_read = all(readers) and all(is_fusable(each.kind) and not is_view(each.kind) for by in readers for each in by)
    return source if is_read else None


def _lies_in_memory(graph: Graph, name: str, is_ours: IsOurs) -> bool:
    made = graph.producers.get(name)
    return made is None or not (is_fusable(made.kind) or is_ours(made))


def _is_sliced(graph: Graph, source: Operation, name: str, parts: list[tuple[str, Part]]) -> bool:
    """Whether an operand has the parts of what is made of it, or is the same for all of them."""
    shape, whole, dim = graph.values[name].tensor.shape, source.output.tensor.shape, parts[0][1].dim
    along = dim - len(whole) + len(shape)
    return shape == whole or along < 0 or shape[along] == 1


def _in_front(graph: Graph, operation: Operation, source: Operation, taken: set[str]) -> list[Operation]:
    """Slices of operands, and the function of each of their parts; `taken` are names."""

    def named(word: str) -> str:
        name = unused(word, taken)
        taken.add(name)
        return name

    whole = source.output.tensor.shape
    parts = [part for _, part in sliced(operation, whole)]
    made: list[Operation] = []
    of: dict[str, list[str]] = {}
    for name in dict.fromkeys(source.inputs):
        tensor = graph.values[name].tensor
        if tensor.shape != whole:
            of[name] = [name] * len(parts)
            continue
        outputs = tuple(Value(named(f"{name}_part"), part.of(tensor)) for part in parts)
        args = {**operation.args, "self": Ref(name)}
        made.append(replace(operation, name=outputs[0].name, args=args, outputs=outputs))
        of[name] = [each.name for each in outputs]
    for place, output in enumerate(operation.outputs):
        args = {key: _taken(each, of, place) for key, each in source.args.items()}
        value = Value(output.name, layouts.packed(output.tensor))
        flops, moved = source.flops // len(parts), source.bytes_moved // len(parts)
        made.append(replace(source, name=output.name, args=args, outputs=(value,), flops=flops, bytes_moved=moved))
    return made


def _taken(argument: Argument, of: dict[str, list[str]], place: int) -> Argument:
    return Ref(of[argument.name][place]) if isinstance(argument, Ref) else argument
