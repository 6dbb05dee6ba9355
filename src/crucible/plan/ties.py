"""Maxima and minima over one dim of which it counts where they are.

PyTorch gives the gradient to one of several elements that are the largest; kernels that reduce share it out. Nobody can
tell where there is one, or where none of them has a slope: behind a ReLU, of which zeros are the largest.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from crucible.graph import ITEM_BYTES, Graph, Operation
from crucible.plan.vocabulary import POINTWISE

KINDS = ("max", "min")
LEVEL = frozenset({
    "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "hardtanh", "relu", "relu6", "threshold", "hardsigmoid",
    "hardshrink", "softshrink", "sign",
})  # fmt: skip
"""Operations that give one value for many, and have no slope where they do; of two tensors if a row shares one."""
FLAT = frozenset({"where", "hardswish"})
"""Others that give one value for many, or for two that are close."""
_SAME = frozenset({"detach", "clone", "to", "contiguous"})
"""They change nothing that would tell two elements apart."""


class _Row(Enum):
    """What the elements of a row are that is looked through."""

    SHARED = "one number"
    APART = "as good as never equal"
    LEVEL = "without a slope where they are equal"
    TIED = "equal where a gradient tells which of them has it"


def tied(graph: Graph) -> frozenset[str]:
    """Names of the maxima and minima whose place counts."""
    asked = [each for each in graph.operations if each.kind in KINDS and isinstance(each.args.get("dim"), int)]
    return frozenset(each.name for each in asked if _Looking(graph, each).found is _Row.TIED)


class _Looking:
    def __init__(self, graph: Graph, operation: Operation) -> None:
        (name,) = operation.inputs
        rank, dim = len(graph.values[name].tensor.shape), operation.args["dim"]
        assert isinstance(dim, int)
        self.graph = graph
        self.place = dim % rank - rank if rank else 0
        """From the end, as operands of fewer dims are broadcast."""
        self.known: dict[str, _Row] = {}
        self.found = self.look(name)

    def look(self, name: str) -> _Row:
        if name not in self.known:
            self.known[name] = self._row(name)
        return self.known[name]

    def _row(self, name: str) -> _Row:
        tensor = self.graph.values[name].tensor
        if len(tensor.shape) < -self.place or not self.place or tensor.shape[self.place] == 1:
            return _Row.SHARED
        if tensor.is_floating and ITEM_BYTES[tensor.dtype] < ITEM_BYTES["float32"]:
            return _Row.TIED  # of few digits
        made = self.graph.producers.get(name)
        if made is None or made.kind not in {*POINTWISE, *_SAME}:
            return _Row.APART
        return _through(made.kind, [row for each in made.inputs if (row := self.look(each)) is not _Row.SHARED])


def _through(kind: str, rows: Iterable[_Row]) -> _Row:
    """What an operation makes of those that differ within a row."""
    several = [*rows]
    found = {*several}
    if not found:
        return _Row.SHARED
    if _Row.TIED in found or kind in FLAT or (kind in LEVEL and len(several) > 1):
        return _Row.TIED
    if kind in LEVEL:
        return _Row.LEVEL
    return found.pop() if len(found) == 1 else _Row.TIED
