"""What is done to each part of a tensor alike, done to the whole once.

A loop over time steps, chunks or heads is a graph in which the same operations read part after part. Those that depend
on nothing that goes from turn to turn are one operation on all parts: the product of a recurrent cell with its inputs,
sums within chunks. And what only the results at the end need is computed there for all turns, so that the turns
themselves are left with what goes from one to the next: an element that a turn hands on, taken behind an operation on
elements, is taken in front of it.

Each element is computed as before, but for biases, which are added up first. A scan over 32 chunks was 172 launches,
and took 2.7 times as long as max-autotune of torch.compile; a loop of 64 cells was two products a turn, and took 2.2
times as long (H100, notes.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crucible.graph import Argument, Graph, Operation, Ref
from crucible.plan.rewriting import Folded, Maker, Rewriting
from crucible.plan.steps import Part
from crucible.plan.vocabulary import BROADCAST
from crucible.plan.wholes import REDUCTIONS, Apart, Wholes, family_of, is_plain
from crucible.schedule.machine import Machine

ANCHORS = frozenset({"linear.default", "cumsum.default", "select.int"}) | REDUCTIONS
"""Operations that are taken together wherever they read parts: each is a launch, or a view, of its own."""
MOST = 0.75
"""Of all turns, the fewest that have an operation which is taken for all of them."""


def with_parts_batched(given: Folded, machine: Machine) -> Folded:
    """What is computed for all parts at once beside what was rewritten before."""
    if not any(family_of(each) for each in given.graph.operations):
        return given
    work = Rewriting(given.graph, machine)
    work.notes, work.apart = list(given.notes), set(given.apart)
    while _anchors_joined(work) or _biases_joined(work):
        pass
    pushed = Rewriting(work.graph, machine)
    pushed.notes, pushed.apart = list(work.notes), set(work.apart)
    while _taken_in_front(pushed) or _anchors_joined(pushed):
        pass
    if _ends_joined(pushed):
        work = pushed
    return Folded.of(work)


# by what they read


def _anchors_joined(work: Rewriting) -> bool:
    """Whether operations that read all parts of a tensor, one each, were made one."""
    for turns in _alike(work.graph):
        first = next(each for each in turns if each is not None)
        rank = len(first.output.tensor.shape)
        for inner in range(rank, -1, -1):
            work.begin(first)
            try:
                whole = Wholes(work).computed(
                    tuple(None if each is None else each.output.name for each in turns), inner
                )
            except Apart:
                work.abandon()
                continue
            work.finish_parts(turns, whole, rank - inner, f"{first.kind} of all parts at once")
            return True
    return False


def _alike(graph: Graph) -> Iterator[list[Operation | None]]:
    """Operations of one kind that read the parts of one tensor, each one of them; None where a part has none."""
    made: dict[str, _Made] = {}
    ids: dict[Any, int] = {}
    for operation in graph.operations:
        family = family_of(operation)
        for turn, output in enumerate(operation.outputs):
            if family:
                made[output.name] = _Made(ids.setdefault(family, len(ids)), turn, len(family.parts))
            elif operation.kind in BROADCAST and (found := _made(operation, made, ids)):
                made[output.name] = found
    groups: dict[_Made, dict[int, Operation]] = {}
    for operation in graph.operations:
        if operation.target.removeprefix("aten.") in ANCHORS and not graph.is_seen(operation.outputs[0].name):
            found = _made(operation, made, ids)
            if found is not None:
                groups.setdefault(replace(found, turn=0), {}).setdefault(found.turn, operation)
    for key, turns in groups.items():
        if len(turns) >= max(2, MOST * key.turns):
            yield [turns.get(turn) for turn in range(key.turns)]


@dataclass(frozen=True)
class _Made:
    """How a value is made from parts, by a number that is the same for all that are made so, and of which turn's."""

    how: int
    turn: int
    turns: int


def _made(operation: Operation, made: Mapping[str, _Made], ids: dict[Any, int]) -> _Made | None:
    """Of what an operation makes; None where it reads no parts, or those of several turns."""
    given = [made.get(name) for name in operation.inputs]
    turns = {(each.turn, each.turns) for each in given if each is not None}
    if len(turns) != 1 or not is_plain(operation):
        return None
    words = repr([(key, each) for key, each in operation.args.items() if not isinstance(each, Ref)])
    read = tuple(name if each is None else each.how for name, each in zip(operation.inputs, given, strict=True))
    return _Made(ids.setdefault((operation.target, words, read), len(ids)), *turns.pop())


def _biases_joined(work: Rewriting) -> bool:
    """Whether a bias that each turn adds to its part of a product was added to all of that before: its gradient is one
    sum then, not one a turn."""
    for operation in work.graph.operations:
        family = family_of(operation)
        whole = None if family is None else work.alone(family.source)
        if family is None or whole is None or whole.kind != "linear":
            continue
        if family.dim == len(whole.output.tensor.shape) - 1:  # parts of its features
            continue
        layers = [_added_layer(work, part) for part in family.parts]
        biases = {None if each is None else each.args["bias"] for each in layers}
        bias = next(iter(biases))
        if len(biases) > 1 or not isinstance(bias, Ref):
            continue
        work.begin(whole)
        own = whole.args["bias"]
        if isinstance(own, Ref):
            args: dict[str, Argument] = {"self": own, "other": bias, "alpha": 1}
            tensor = work.values[bias.name].tensor
            bias = Ref(work.put("add", "aten.add.Tensor", args, tensor.shape, tensor.dtype))
        without = {each.name: (_biased(each, None),) for each in layers if each is not None}
        work.exchange({**without, whole.name: (*work.made, _biased(whole, bias))}, "biases of all turns at once")
        return True
    return False


def _added_layer(work: Rewriting, part: str) -> Operation | None:
    """The linear layer whose result alone is added to a part that nothing else reads."""
    readers = work.graph.readers(part)
    added = readers[0] if len(readers) == 1 and part not in work.graph.outputs else None
    if added is None or added.target != "aten.add.Tensor" or added.args["alpha"] != 1:
        return None
    own = work.values[part].tensor
    for name in added.inputs:
        tensor = work.values[name].tensor
        made = work.alone(name) if name != part and (tensor.shape, tensor.dtype) == (own.shape, own.dtype) else None
        if made is not None and made.kind == "linear":
            return made
    return None


def _biased(layer: Operation, bias: Argument) -> Operation:
    return replace(layer, args={**layer.args, "bias": bias})


# by where they end


def _ends_joined(work: Rewriting) -> bool:
    """Whether what comes together at the end of a loop was made one."""
    ends = [each for each in work.graph.operations if each.kind in ("cat", "stack")]
    return sum(_end_joined(work, each) for each in ends) > 0


def _end_joined(work: Rewriting, end: Operation) -> bool:
    tensors, dim = end.args.get("tensors"), end.args.get("dim")
    if not isinstance(tensors, tuple) or not isinstance(dim, int) or len(tensors) < 2:
        return False
    turns, shape = tuple(each.name for each in tensors if isinstance(each, Ref)), end.output.tensor.shape
    dim %= len(shape)
    rank = len(work.shape(turns[0]))
    work.begin(end)
    wholes = Wholes(work, stacks=True)
    try:
        whole = wholes.computed(turns, rank - dim)
    except Apart:
        whole = ""
    if not whole or not wholes.pays:
        work.abandon()
        return False
    work.apart |= wholes.handed_on
    whole = Maker(work, end.output.tensor.dtype).reshape(whole, shape)
    work.finish(end, whole, f"{end.kind} of what turns make, made of all at once")
    return True


def _taken_in_front(work: Rewriting) -> bool:
    """Whether places that are taken of what operations make element by element, which others read too, are taken of
    their operands instead."""
    taking = _Taking(work)
    put: dict[str, Sequence[Operation]] = {}
    same: dict[str, str] = {}
    for operation in work.graph.operations:
        source = _read_whole(work.graph, operation)
        work.begin(operation)
        found = None if source is None else taking.in_front(operation, source)
        if found is None:
            work.abandon()
            taking.passed(operation)
        elif work.made:
            put[operation.name] = work.standing_for(operation, [found])
        else:
            put[operation.name], same[operation.output.name] = (), same.get(found, found)
    if put:
        work.exchange(put, "", same)
    return bool(put)


def _read_whole(graph: Graph, operation: Operation) -> Operation | None:
    """What makes the tensor that a place is taken of, if others read all of it; None of other operations."""
    source = graph.producers.get(operation.inputs[0]) if operation.target == "aten.select.int" else None
    if source is None or not is_plain(source) or len(graph.readers(source.output.name)) < 2:
        return None
    seen = graph.is_seen(operation.output.name) or any(operation.output.name == each.value for each in graph.mutations)
    return None if seen else source


class _Taking:
    """Places of operands, each taken once. Operations are gone through in their order."""

    def __init__(self, work: Rewriting) -> None:
        self.work = work
        self.known: dict[tuple[str, int, int], str] = {}
        """What is taken by then, by tensor, dim and index."""

    def passed(self, operation: Operation) -> None:
        """An operation that stays."""
        if operation.target == "aten.select.int":
            shape, dim, index = self.work.shape(operation.inputs[0]), operation.args["dim"], operation.args["index"]
            assert isinstance(dim, int) and isinstance(index, int)
            key = operation.inputs[0], dim % len(shape), index % shape[dim]
            self.known.setdefault(key, operation.output.name)

    def in_front(self, taken: Operation, source: Operation) -> str | None:
        """The place that `taken` takes of what `source` makes, of its operands; None where that is not the same."""
        shape = source.output.tensor.shape
        dim, index = taken.args["dim"], taken.args["index"]
        assert isinstance(dim, int) and isinstance(index, int)
        behind, place = len(shape) - dim % len(shape), index % shape[dim]
        if source.kind == "unsqueeze":
            own = source.args["dim"]
            assert isinstance(own, int)
            return source.inputs[0] if len(shape) - own % len(shape) == behind else None
        if source.kind not in BROADCAST:
            return None
        args: dict[str, Argument] = {}
        for key, each in source.args.items():
            given = self.work.shape(each.name) if isinstance(each, Ref) else ()
            if isinstance(each, Ref) and len(given) >= behind:
                each = Ref(self._place(each.name, len(given) - behind, place if given[-behind] > 1 else 0))
            args[key] = each
        kept = taken.output.tensor
        return self.work.put(source.kind, source.target, args, kept.shape, kept.dtype)

    def _place(self, name: str, dim: int, index: int) -> str:
        if (name, dim, index) not in self.known:
            place = Part(dim, index, 1, drops=True).of(self.work.values[name].tensor)
            args: dict[str, Argument] = {"self": Ref(name), "dim": dim, "index": index}
            put = self.work.put("select", "aten.select.int", args, place.shape, place.dtype, strides=place.strides)
            self.known[name, dim, index] = put
        return self.known[name, dim, index]
