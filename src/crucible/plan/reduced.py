"""Sums, means and average pools, as one thing: what they reduce, and how to reduce something else likewise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from crucible.graph import Graph, Operation, Ref
from crucible.plan.rewriting import Maker


class Averaged(NamedTuple):
    """A pool's windows along a dim of space: all lie inside."""

    size: int
    stride: int


@dataclass(frozen=True)
class Reduced:
    """A sum, mean or average pool."""

    source: str
    """The value that it reduces."""
    dims: tuple[int, ...]
    """Of the source; of a pool those that its windows reach along."""
    share: int
    """By what the mean over dims is multiplied: 1, or for a sum how many elements it adds up."""
    windows: tuple[Averaged, ...] = ()
    """Of a pool, for each of the last dims."""
    through: Push | None = None
    """Puts it in front of what makes its source; None where that cannot be."""
    shared: Push | None = None
    """The same, where others read the source too."""
    must: bool = False
    """Whether it is to go on so, until something linear takes it in."""

    def of(self, make: Maker, name: str) -> str:
        """The same of another value of the same rank; dims stay. Raises Nowhere."""
        if self.must:
            found = self.through(make, replace(self, source=name)) if self.through else None
            if found is None:
                raise Nowhere
            return found
        if self.windows:
            return make.pool(name, [each.size for each in self.windows], [each.stride for each in self.windows])
        return make.mean(name, self.dims) if self.share == 1 else make.total(name, self.dims)

    def pushed(self, make: Maker, other: Reduced) -> tuple[str, bool]:
        """Another reduction, in front of the convolution that its source comes from, or of the source; and which."""
        try:
            return replace(other, through=self.shared, shared=self.shared, must=True).of(make, other.source), True
        except Nowhere:
            return replace(other, must=False).of(make, other.source), False


class Nowhere(Exception):
    """Nothing takes a reduction in at the other end. Never leaves this room."""


Push = Callable[[Maker, Reduced], "str | None"]


def reduction_of(operation: Operation, graph: Graph) -> Reduced | None:
    """The operation as a reduction; None where it is none, or adds up another type, or pads."""
    if operation.kind in ("sum", "mean"):
        return _of_dims(operation, graph)
    for rank in (1, 2, 3):
        if operation.kind == f"avg_pool{rank}d":
            return _of_windows(operation, rank, graph)
        if operation.kind == f"adaptive_avg_pool{rank}d":
            return _of_space(operation, rank, graph)
    return None


def _shape(operation: Operation, graph: Graph) -> tuple[str, tuple[int, ...]]:
    given = operation.args["self"]
    assert isinstance(given, Ref)
    return given.name, graph.values[given.name].tensor.shape


def _of_dims(operation: Operation, graph: Graph) -> Reduced | None:
    name, shape = _shape(operation, graph)
    asked: Any = operation.args.get("dim")
    if operation.args.get("dtype") not in (None, operation.outputs[0].tensor.dtype) or not shape:
        return None
    several = asked if isinstance(asked, tuple) else None if asked is None else (asked,)
    dims = tuple(sorted({d % len(shape) for d in several})) if several else tuple(range(len(shape)))
    return Reduced(name, dims, math.prod(shape[d] for d in dims) if operation.kind == "sum" else 1)


def _each(given: Any, rank: int) -> tuple[int, ...]:
    several = given if isinstance(given, tuple) else (given,)
    return several * rank if len(several) == 1 else several


def _of_windows(operation: Operation, rank: int, graph: Graph) -> Reduced | None:
    name, shape = _shape(operation, graph)
    args = operation.args
    sizes = _each(args["kernel_size"], rank)
    strides = _each(args["stride"] or args["kernel_size"], rank)
    plain = not any(_each(args["padding"], rank)) and not args["ceil_mode"] and args.get("divisor_override") is None
    if not plain or len(shape) < rank + 1:
        return None
    windows = tuple(Averaged(*each) for each in zip(sizes, strides, strict=True))
    return Reduced(name, tuple(range(len(shape) - rank, len(shape))), 1, windows)


def _of_space(operation: Operation, rank: int, graph: Graph) -> Reduced | None:
    name, shape = _shape(operation, graph)
    if any(n != 1 for n in operation.outputs[0].tensor.shape[-rank:]):
        return None
    return Reduced(name, tuple(range(len(shape) - rank, len(shape))), 1)
