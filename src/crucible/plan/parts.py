"""Parts of a tensor that are taken one by one, taken by one call.

The gradient of a slice is a tensor of zeros with one part filled in, and autograd adds up as many of these as there are
slices: 4.2 of 6.8 ms of kernels of a scan over 32 chunks with gradients (H200). That of `split` is one `cat`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from crucible.graph import Argument, Graph, Operation, Ref, TensorType, Value, unused
from crucible.plan.layouts import renamed
from crucible.plan.steps import Part

LEAST_SHARE = 0.5
"""Of a tensor that is taken: the gradient of what is not is zeros."""
SLICES = frozenset({"slice", "split", "split_with_sizes", "chunk"})
"""Operations that make parts of a tensor, views of it."""
_PLACES = frozenset({"select", "unbind"})
"""Operations that make parts of one place, without its dim."""
_JOINING = frozenset({"cat", "stack"})


@dataclass(frozen=True)
class _Part:
    """From where to where along a dim an operation takes a tensor."""

    operation: Operation
    start: int
    end: int


def sliced(operation: Operation, shape: Sequence[int]) -> list[tuple[str, Part]]:
    """The names of what an operation makes of a tensor of this shape, and which parts of it these are; nothing where
    they are no such."""
    dim, first = operation.args.get("dim", 0), operation.args.get("start", operation.args.get("index", 0))
    if operation.kind not in SLICES | _PLACES or not isinstance(dim, int) or not isinstance(first, int | None):
        return []
    dim, step = dim % len(shape), operation.args.get("step", 1)
    assert isinstance(step, int)
    drops = operation.kind in _PLACES
    start, _, _ = slice(first, None).indices(shape[dim])
    found = []
    for output in operation.outputs:
        found.append((output.name, Part(dim, start, 1 if drops else output.tensor.shape[dim], drops, step)))
        start += found[-1][1].size
    return found


def joined(operation: Operation) -> list[tuple[str, Part]]:
    """What `cat` or `stack` joins, and which parts of the whole these are, all of one size; nothing of others."""
    given, dim, whole = operation.args.get("tensors"), operation.args.get("dim", 0), operation.outputs[0].tensor
    if operation.kind not in _JOINING or not isinstance(given, tuple) or not isinstance(dim, int):
        return []
    names, dim = [each.name for each in given if isinstance(each, Ref)], dim % len(whole.shape)
    size = whole.shape[dim] // len(names)
    return [(name, Part(dim, n * size, size, operation.kind == "stack")) for n, name in enumerate(names)]


def with_parts_by_one_call(graph: Graph) -> Graph:
    """The graph with slices that lie beside each other as one `split_with_sizes`, and places as one `unbind`."""
    graph = _taken_once(graph)
    groups: dict[tuple[str, str, int], list[_Part]] = {}
    for operation in graph.operations:
        for key, part in _part(operation, graph):
            groups.setdefault(key, []).append(part)
    taken = {*graph.values, *(operation.name for operation in graph.operations)}
    calls: dict[str, Operation] = {}
    gone: set[str] = set()
    for (kind, source, dim), parts in groups.items():
        seen = any(
            graph.is_seen(part.operation.output.name) for part in parts
        )  # one of several views is not written to
        if _pays(parts, graph.values[source].tensor.shape[dim]) and not seen:
            calls[parts[0].operation.name] = _TAKEN[kind](graph, source, dim, parts, taken)
            gone |= {part.operation.name for part in parts}
    if not calls:
        return graph
    made = ((calls[each.name],) if each.name in calls else () if each.name in gone else (each,)
            for each in graph.operations)  # fmt: skip
    return replace(graph, operations=tuple(operation for each in made for operation in each))


def _taken_once(graph: Graph) -> Graph:
    """The graph without slices that are the same part of a tensor as an earlier one."""
    first: dict[tuple[str, Part], str] = {}
    again: dict[str, str] = {}
    operations = []
    for each in graph.operations:
        operation = renamed(each, again)
        source, made = operation.args.get("self"), operation.outputs[0].name
        if operation.kind in _TAKEN and isinstance(source, Ref) and not graph.is_seen(made):
            for _, part in sliced(operation, graph.values[source.name].tensor.shape):
                again |= {made: first[source.name, part]} if (source.name, part) in first else {}
                first.setdefault((source.name, part), made)
        if made not in again:
            operations.append(operation)
    return replace(graph, operations=tuple(operations)) if again else graph


def _part(operation: Operation, graph: Graph) -> Iterator[tuple[tuple[str, str, int], _Part]]:
    """What it takes, and of what; nothing of other operations."""
    source, dim = operation.args.get("self"), operation.args.get("dim")
    if operation.kind not in _TAKEN or not isinstance(source, Ref) or not isinstance(dim, int):
        return
    tensor = graph.values[source.name].tensor
    if not tensor.is_floating or operation.args.get("step", 1) != 1:
        return
    size = tensor.shape[dim]
    if operation.kind == "select":
        index = operation.args["index"]
        assert isinstance(index, int)
        start, end = index % size, index % size + 1
    else:
        first, last = operation.args["start"], operation.args["end"]
        if not all(each is None or isinstance(each, int) for each in (first, last)):
            return
        start, end, _ = slice(first, last).indices(size)
    yield (operation.kind, source.name, dim % len(tensor.shape)), _Part(operation, start, end)


def _pays(parts: list[_Part], size: int) -> bool:
    """Whether there are several, none of which has a place of another's, and they are most of the tensor."""
    ordered = sorted(parts, key=lambda part: part.start)
    apart = all(one.end <= other.start for one, other in pairwise(ordered)) and all(p.start < p.end for p in parts)
    return len(parts) > 1 and apart and sum(part.end - part.start for part in parts) >= LEAST_SHARE * size


def _split(graph: Graph, source: str, dim: int, parts: list[_Part], taken: set[str]) -> Operation:
    """Slices, and what lies between them."""
    tensor = graph.values[source].tensor
    outputs, sizes, at = [], [], 0
    for part in sorted(parts, key=lambda part: part.start):
        between = [(_rest(source, taken), part.start - at)] if part.start > at else []
        for name, size in [*between, (part.operation.output.name, part.end - part.start)]:
            outputs.append(Value(name, _sized(tensor, dim, size)))
            sizes.append(size)
        at = part.end
    if at < tensor.shape[dim]:
        sizes.append(tensor.shape[dim] - at)
        outputs.append(Value(_rest(source, taken), _sized(tensor, dim, sizes[-1])))
    args: dict[str, Argument] = {"self": Ref(source), "split_sizes": tuple(sizes), "dim": dim}
    return _call("split_with_sizes", "aten.split_with_sizes.default", args, outputs, parts)


def _unbound(graph: Graph, source: str, dim: int, parts: list[_Part], taken: set[str]) -> Operation:
    """All places along a dim."""
    tensor = graph.values[source].tensor
    given = {part.start: part.operation.output for part in parts}
    shape, strides = (each[:dim] + each[dim + 1 :] for each in (tensor.shape, tensor.strides))
    type_ = TensorType(shape, strides, tensor.dtype)
    places = range(tensor.shape[dim])
    outputs = [given.get(place) or Value(_rest(source, taken), type_) for place in places]
    return _call("unbind", "aten.unbind.int", {"self": Ref(source), "dim": dim}, outputs, parts)


def _rest(source: str, taken: set[str]) -> str:
    """A name for a part that nobody reads."""
    name = unused(f"{source}_rest", taken)
    taken.add(name)
    return name


def _sized(tensor: TensorType, dim: int, size: int) -> TensorType:
    return replace(tensor, shape=(*tensor.shape[:dim], size, *tensor.shape[dim + 1 :]))


def _call(kind: str, target: str, args: Mapping[str, Argument], outputs: list[Value], parts: list[_Part]) -> Operation:
    return Operation(outputs[0].name, kind, target, args, tuple(outputs), parts[0].operation.where, 0, 0)


_TAKEN: dict[str, Callable[[Graph, str, int, list[_Part], set[str]], Operation]] = {"slice": _split, "select": _unbound}
"""By the kind of the operations that take parts."""
