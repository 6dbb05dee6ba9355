"""What is done to each part of a tensor alike, done to the whole once.

A loop over time steps, chunks or heads is a graph in which the same operations read part after part. Those that depend
on nothing that goes from turn to turn are one operation on all parts: the product of a recurrent cell with its inputs,
sums within chunks. And what only the results at the end need is computed there for all turns, so that the turns
themselves are left with what goes from one to the next: an element that a turn hands on, taken behind an operation on
elements, is taken in front of it.

Each element is computed as before, but for biases, which are added up first. A scan over 32 chunks was 200 launches,
and took 2.7 times as long as max-autotune of torch.compile; a loop of 64 cells was two products a turn, and took 2.2
times as long (H100, notes.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from crucible.graph import Argument, Graph, Operation, Ref, TensorType
from crucible.plan.rewriting import Folded, Rewriting
from crucible.plan.vocabulary import POINTWISE
from crucible.schedule.machine import Machine

ELEMENTWISE = frozenset(POINTWISE) - {"prelu"}  # whose weight is not broadcast as operands are
REDUCTIONS = frozenset({"sum.dim_IntList", "mean.dim", "amax.default", "amin.default"})
ANCHORS = frozenset({"linear.default", "cumsum.default", "select.int"}) | REDUCTIONS
"""Operations that are taken together wherever they read parts: each is a launch, or a view, of its own."""
STACKED = 0.25
"""Of the largest value that is computed for all turns at once, the most that may be copied for it."""
Names = tuple[str | None, ...]
"""A value of each turn, in their order; None of turns that have none: the last hands nothing on."""
MOST = 0.75
"""Of all turns, the fewest that have an operation which is taken for all of them."""


class Apart(Exception):
    """These values are not computed as one."""


@dataclass(frozen=True)
class _Family:
    """All parts of a tensor along a dim, which are of one size."""

    source: str
    dim: int
    parts: tuple[str, ...]
    places: bool
    """Whether each is one place, without the dim."""


def with_parts_batched(given: Folded, machine: Machine) -> Folded:
    """What is computed for all parts at once beside what was rewritten before."""
    if not any(_family(each) for each in given.graph.operations):
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


def _family(operation: Operation) -> _Family | None:
    """What it takes apart; None where that is nothing, or not into parts of one size."""
    if operation.kind not in ("unbind", "split_with_sizes", "split", "chunk") or len(operation.outputs) < 2:
        return None
    source, dim = operation.args["self"], operation.args["dim"]
    if not isinstance(source, Ref) or not isinstance(dim, int):
        return None
    shape = operation.outputs[0].tensor.shape
    if any(each.tensor.shape != shape for each in operation.outputs):
        return None
    places = operation.kind == "unbind"
    names = tuple(each.name for each in operation.outputs)
    return _Family(source.name, dim % (len(shape) + places), names, places)


# by what they read


def _anchors_joined(work: Rewriting) -> bool:
    """Whether operations that read all parts of a tensor, one each, were made one."""
    for turns in _alike(work.graph):
        first = next(each for each in turns if each is not None)
        rank = len(first.output.tensor.shape)
        for inner in range(rank, -1, -1):
            work.begin(first)
            try:
                whole = _Wholes(work).computed(
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
        family = _family(operation)
        for turn, output in enumerate(operation.outputs):
            if family:
                made[output.name] = _Made(ids.setdefault(family, len(ids)), turn, len(family.parts))
            elif operation.kind in ELEMENTWISE and (found := _made(operation, made, ids)):
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
    if len(turns) != 1 or not _is_plain(operation):
        return None
    words = repr([(key, each) for key, each in operation.args.items() if not isinstance(each, Ref)])
    read = tuple(name if each is None else each.how for name, each in zip(operation.inputs, given, strict=True))
    return _Made(ids.setdefault((operation.target, words, read), len(ids)), *turns.pop())


def _is_plain(operation: Operation) -> bool:
    return len(operation.outputs) == 1 and not operation.mutates and not operation.draws


def _biases_joined(work: Rewriting) -> bool:
    """Whether a bias that each turn adds to its part of a product was added to all of that before: its gradient is one
    sum then, not one a turn."""
    for operation in work.graph.operations:
        family = _family(operation)
        whole = None if family is None else work.alone(family.source)
        if family is None or whole is None or whole.kind != "linear":
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
    for name in added.inputs:
        made = work.alone(name) if name != part and work.shape(name) == work.shape(part) else None
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
    turns = tuple(each.name for each in tensors if isinstance(each, Ref))
    shape = end.output.tensor.shape
    dim %= len(shape)
    rank = len(work.shape(turns[0]))
    work.begin(end)
    wholes = _Wholes(work, stacks=True)
    try:
        whole = wholes.computed(turns, rank - dim)
    except Apart:
        whole = ""
    if not whole or not wholes.pays:
        work.abandon()
        return False
    work.apart |= wholes.handed_on
    work.finish(end, wholes.shaped(whole, shape), f"{end.kind} of what turns make, made of all at once")
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
            put[operation.name] = work.standing_for(operation, found)
        else:
            put[operation.name], same[operation.output.name] = (), same.get(found, found)
    if put:
        work.exchange(put, "", same)
    return bool(put)


def _read_whole(graph: Graph, operation: Operation) -> Operation | None:
    """What makes the tensor that a place is taken of, if others read all of it; None of other operations."""
    source = graph.producers.get(operation.inputs[0]) if operation.target == "aten.select.int" else None
    if source is None or not _is_plain(source) or len(graph.readers(source.output.name)) < 2:
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
        if source.kind not in ELEMENTWISE:
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
            tensor = self.work.values[name].tensor
            shape, strides = (each[:dim] + each[dim + 1 :] for each in (tensor.shape, tensor.strides))
            args: dict[str, Argument] = {"self": Ref(name), "dim": dim, "index": index}
            put = self.work.put("select", "aten.select.int", args, shape, tensor.dtype, strides=strides)
            self.known[name, dim, index] = put
        return self.known[name, dim, index]


# all turns at once


class _Wholes:
    """Values of all turns as one tensor: of a part's shape, with a dim of turns that has `inner` dims behind it."""

    def __init__(self, work: Rewriting, *, stacks: bool = False) -> None:
        self.work = work
        self.part_of = {name: (found, turn) for each in work.graph.operations if (found := _family(each))
                        for turn, name in enumerate(found.parts)}  # fmt: skip
        self.stacks = stacks
        """Whether what is not alike may be copied."""
        self.stacked, self.largest = 0, 0
        """Bytes of all that is, and of the largest value that is computed."""
        self.handed_on: set[str] = set()
        """What is copied: turns make it from what those before them made, each once."""
        self.made: dict[tuple[Names, int], str] = {}

    @property
    def pays(self) -> bool:
        return self.stacked <= STACKED * self.largest

    def of(self, turns: Names, inner: int) -> str:
        """Raises Apart where they are not alike, and not to be copied."""
        if (turns, inner) not in self.made:
            self.made[turns, inner] = self._found(turns, inner)
        return self.made[turns, inner]

    def computed(self, turns: Names, inner: int) -> str:
        """By one operation; raises Apart."""
        first, operations = self._alike(turns)
        shape = self._shape(turns, inner)
        dims = _OTHER_DIMS.get(first.target.removeprefix("aten."), None if first.kind in ELEMENTWISE else _not_covered)
        given, args = dims(first, inner, len(shape) - 1) if dims else (inner, dict(first.args))
        for key, each in first.args.items():
            if isinstance(each, Ref):
                read = tuple(None if other is None else _name(other.args[key]) for other in operations)
                args[key] = Ref(self._operand(read, given, first, key))
        tensor = first.output.tensor
        strides = _view_strides(first, self.work, args, shape)
        depth = self.work.shape(_name(args["weight"]))[1] if first.kind == "linear" else 0
        found = self.work.put(first.kind, first.target, args, shape, tensor.dtype, depth=depth, strides=strides)
        self.largest = max(self.largest, self.work.values[found].tensor.bytes)
        return found

    def shaped(self, whole: str, shape: Sequence[int]) -> str:
        """Parts side by side."""
        if self.work.shape(whole) == tuple(shape):
            return whole
        args: dict[str, Argument] = {"self": Ref(whole), "shape": tuple(shape)}
        return self.work.put("reshape", "aten.reshape.default", args, shape, self.work.values[whole].tensor.dtype)

    def _found(self, turns: Names, inner: int) -> str:
        family, _ = self.part_of.get(_first(turns), (None, 0))
        if family and all(name in (None, part) for name, part in zip(turns, family.parts, strict=False)):
            return self._source(family, inner) if len(turns) == len(family.parts) else _raise()
        try:
            return self.computed(turns, inner)
        except Apart:
            if not self.stacks:
                raise
        return self._stacked(turns, inner)

    def _source(self, family: _Family, inner: int) -> str:
        tensor, dim = self.work.values[family.source].tensor, family.dim
        if len(tensor.shape) - 1 + (not family.places) - dim != inner:
            raise Apart
        if family.places:
            return family.source
        turns, size, stride = len(family.parts), tensor.shape[dim] // len(family.parts), tensor.strides[dim]
        shape = (*tensor.shape[:dim], turns, size, *tensor.shape[dim + 1 :])
        strides = (*tensor.strides[:dim], stride * size, stride, *tensor.strides[dim + 1 :])
        args: dict[str, Argument] = {"self": Ref(family.source), "shape": shape}
        return self.work.put("reshape", "aten.reshape.default", args, shape, tensor.dtype, strides=strides)

    def _stacked(self, turns: Names, inner: int) -> str:
        shape, given = self._shape(turns, inner), [name for name in turns if name is not None]
        if len(given) < len(turns):
            raise Apart
        args: dict[str, Argument] = {"tensors": tuple(map(Ref, given)), "dim": len(shape) - 1 - inner}
        found = self.work.put("stack", "aten.stack.default", args, shape, self.work.values[given[0]].tensor.dtype)
        self.handed_on |= {*given}
        self.stacked += self.work.values[found].tensor.bytes
        return found

    def _shape(self, turns: Names, inner: int) -> tuple[int, ...]:
        types = {(self.work.shape(name), self.work.values[name].tensor.dtype) for name in turns if name is not None}
        shape, _ = types.pop()
        if types or inner > len(shape):
            raise Apart
        return (*shape[: len(shape) - inner], len(turns), *shape[len(shape) - inner :])

    def _alike(self, turns: Names) -> tuple[Operation, list[Operation | None]]:
        """What makes them, and the first of that."""
        producers = self.work.graph.producers
        first = producers.get(_first(turns))
        made = [None if name is None else producers.get(name) for name in turns]
        others = [each for name, each in zip(turns, made, strict=True) if name is not None]
        if first is None or not all(_are_alike(first, each) for each in others):
            raise Apart
        if (
            len({each.inputs for each in others if each is not None}) == 1
        ):  # what reads no turn's own has no dim of turns
            raise Apart
        return first, made

    def _operand(self, turns: Names, inner: int, operation: Operation, key: str) -> str:
        """What all turns read there, with a dim for turns or without."""
        is_shared = len({*turns} - {None}) == 1
        if operation.kind == "linear" and key != "input":
            return _first(turns) if is_shared else _raise()
        found = self._broadcast(_first(turns), inner) if is_shared else self.of(turns, inner)
        if operation.kind in ELEMENTWISE and not _in_order(self.work.values[found].tensor):
            raise Apart  # PyTorch would lay what it makes in another order
        return found

    def _broadcast(self, name: str, inner: int) -> str:
        """A value that all turns read."""
        tensor = self.work.values[name].tensor
        dim = len(tensor.shape) - inner
        if dim <= 0:
            return name
        args: dict[str, Argument] = {"self": Ref(name), "dim": dim}
        shape = (*tensor.shape[:dim], 1, *tensor.shape[dim:])
        step = tensor.shape[dim] * tensor.strides[dim] if inner else 1
        strides = (*tensor.strides[:dim], step, *tensor.strides[dim:])
        return self.work.put("unsqueeze", "aten.unsqueeze.default", args, shape, tensor.dtype, strides=strides)


def _are_alike(one: Operation, other: Operation | None) -> bool:
    """Whether both do the same, but for the tensors that they read."""
    if other is None or not _is_plain(other) or one.target != other.target or one.args.keys() != other.args.keys():
        return False
    pairs = [(each, other.args[key]) for key, each in one.args.items()]
    return all((isinstance(a, Ref) and isinstance(b, Ref)) or a == b for a, b in pairs)


def _first(turns: Names) -> str:
    return next(name for name in turns if name is not None)


def _raise() -> NoReturn:
    raise Apart


def _name(argument: Argument) -> str:
    if not isinstance(argument, Ref):
        raise Apart
    return argument.name


def _in_order(tensor: TensorType) -> bool:
    """Whether no dim lies within one that comes behind it."""
    steps = [stride for size, stride in zip(tensor.shape, tensor.strides, strict=True) if size > 1 and stride]
    return steps == sorted(steps, reverse=True)


Dims = tuple[int, dict[str, Argument]]
"""How many dims of the operand of all turns lie behind that of turns, and the operation's arguments there."""


def _not_covered(operation: Operation, inner: int, rank: int) -> Dims:
    raise Apart


def _of_features(operation: Operation, inner: int, rank: int) -> Dims:
    if not inner:
        raise Apart
    return inner, dict(operation.args)


def _along(operation: Operation, inner: int, rank: int) -> Dims:
    dim = _dim(operation, rank)
    return inner, {**operation.args, "dim": dim + (dim >= rank - inner)}


def _with_one_more(operation: Operation, inner: int, rank: int) -> Dims:
    dim = _dim(operation, rank)
    is_behind = dim >= rank - inner
    return inner - is_behind, {**operation.args, "dim": dim + is_behind}


def _with_one_less(operation: Operation, inner: int, rank: int) -> Dims:
    dim = _dim(operation, rank + 1)
    is_behind = dim >= rank - inner
    return inner + is_behind, {**operation.args, "dim": dim + is_behind}


def _reduced(operation: Operation, inner: int, rank: int) -> Dims:
    """Dims that go lie behind that of turns, where it could be either."""
    asked = operation.args["dim"]
    gone = 0 if operation.args["keepdim"] else len(asked) if isinstance(asked, tuple) else 0
    if not isinstance(asked, tuple) or not asked:
        raise Apart
    dims = {each % (rank + gone) for each in asked if isinstance(each, int)}
    left = [dim for dim in range(rank + gone) if not gone or dim not in dims]
    front = left[rank - inner - 1] + 1 if rank > inner else 0
    args: dict[str, Argument] = {"dim": tuple(sorted(dim + (dim >= front) for dim in dims))}
    return rank + gone - front, {**operation.args, **args}


def _dim(operation: Operation, rank: int) -> int:
    dim = operation.args["dim"]
    if not isinstance(dim, int):
        raise Apart
    return dim % rank


_OTHER_DIMS: Mapping[str, Callable[[Operation, int, int], Dims]] = {
    "linear.default": _of_features,
    "cumsum.default": _along,
    "unsqueeze.default": _with_one_more,
    "select.int": _with_one_less,
    **dict.fromkeys(REDUCTIONS, _reduced),
}
"""Of operations that are not element by element: from `inner` dims behind that of turns, and how many a part has, of
what they make."""


def _view_strides(
    operation: Operation, work: Rewriting, args: Mapping[str, Argument], shape: Sequence[int]
) -> tuple[int, ...] | None:
    """Those of a view of its operand; None where it is none, and contiguous."""
    if operation.kind not in ("select", "unsqueeze"):
        return None
    tensor, dim = work.values[_name(args["self"])].tensor, args["dim"]
    assert isinstance(dim, int)
    if operation.kind == "select":
        return (*tensor.strides[:dim], *tensor.strides[dim + 1 :])
    step = shape[dim + 1] * tensor.strides[dim] if dim < len(tensor.shape) else 1
    return (*tensor.strides[:dim], step, *tensor.strides[dim:])
