"""Values of all turns of a loop as one tensor, computed by one operation or seen in what they are parts of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crucible.graph import Argument, Operation, Ref, TensorType
from crucible.plan.rewriting import Maker, Rewriting
from crucible.plan.steps import Part
from crucible.plan.vocabulary import BROADCAST

REDUCTIONS = frozenset({"sum.dim_IntList", "mean.dim", "amax.default", "amin.default"})
CONSTANT = frozenset({"select.int", "cumsum.default", "sum.dim_IntList", "mean.dim"})
"""Linear maps whose coefficients are no values: the gradient of a turn that nobody reads is 0, whatever lies there. Of
others it may be 0 by infinity."""
STACKED = 0.25
"""Of the largest value that is computed for all turns at once, the most that may be copied for it."""
Names = tuple[str | None, ...]
"""A value of each turn, in their order; None of turns that have none: the last hands nothing on."""


class Apart(Exception):
    """These values are not computed as one."""


@dataclass(frozen=True)
class Family:
    """All parts of a tensor along a dim, which are of one size."""

    source: str
    dim: int
    parts: tuple[str, ...]
    places: bool
    """Whether each is one place, without the dim."""


def family_of(operation: Operation) -> Family | None:
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
    return Family(source.name, dim % (len(shape) + places), names, places)


def is_plain(operation: Operation) -> bool:
    """Whether it may be computed elsewhere, and gives one value."""
    return len(operation.outputs) == 1 and not operation.mutates and not operation.draws


class Wholes:
    """Values of all turns as one tensor: of a part's shape, with a dim of turns that has `inner` dims behind it."""

    def __init__(self, work: Rewriting, *, stacks: bool = False) -> None:
        self.work = work
        self.part_of = {name: (found, turn) for each in work.graph.operations if (found := family_of(each))
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
        dims = _OTHER_DIMS.get(first.target.removeprefix("aten."), None if first.kind in BROADCAST else _not_covered)
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

    def _found(self, turns: Names, inner: int) -> str:
        family, _ = self.part_of.get(_first(turns), (None, 0))
        if family and len(turns) == len(family.parts) and all(map(_may_be, turns, family.parts)):
            return self._source(family, inner)
        try:
            return self.computed(turns, inner)
        except Apart:
            if not self.stacks:
                raise
        return self._stacked(turns, inner)

    def _source(self, family: Family, inner: int) -> str:
        tensor, dim = self.work.values[family.source].tensor, family.dim
        if len(tensor.shape) - 1 + (not family.places) - dim != inner:
            raise Apart
        if family.places:
            return family.source
        turns, size, stride = len(family.parts), tensor.shape[dim] // len(family.parts), tensor.strides[dim]
        shape = (*tensor.shape[:dim], turns, size, *tensor.shape[dim + 1 :])
        strides = (*tensor.strides[:dim], stride * size, stride, *tensor.strides[dim + 1 :])
        return Maker(self.work, tensor.dtype).reshape(family.source, shape, strides)

    def _stacked(self, turns: Names, inner: int) -> str:
        shape, given = self._shape(turns, inner), [name for name in turns if name is not None]
        if len(given) < len(turns):
            raise Apart
        found = Maker(self.work, self.work.values[given[0]].tensor.dtype).stack(given, len(shape) - 1 - inner)
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
        if len({each.inputs for each in others if each is not None}) == 1:  # nothing of each turn's own
            raise Apart
        if None in turns and first.target.removeprefix("aten.") not in CONSTANT:
            raise Apart
        return first, made

    def _operand(self, turns: Names, inner: int, operation: Operation, key: str) -> str:
        """What all turns read there, with a dim for turns or without."""
        is_shared = len({*turns} - {None}) == 1
        if operation.kind == "linear" and key != "input":
            if not is_shared:
                raise Apart
            return _first(turns)
        found = self._broadcast(_first(turns), inner) if is_shared else self.of(turns, inner)
        if operation.kind in BROADCAST and not _in_order(self.work.values[found].tensor):
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
    if other is None or not is_plain(other) or one.target != other.target or one.args.keys() != other.args.keys():
        return False
    pairs = [(each, other.args[key]) for key, each in one.args.items()]
    return all((isinstance(a, Ref) and isinstance(b, Ref)) or a == b for a, b in pairs)


def _first(turns: Names) -> str:
    return next(name for name in turns if name is not None)


def _may_be(name: str | None, part: str) -> bool:
    return name is None or name == part


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
        return Part(dim, 0, 1, drops=True).of(tensor).strides
    step = shape[dim + 1] * tensor.strides[dim] if dim < len(tensor.shape) else 1
    return (*tensor.strides[:dim], step, *tensor.strides[dim:])
