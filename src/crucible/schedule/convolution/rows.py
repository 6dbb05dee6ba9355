"""How the outputs of a box lie in memory: runs of neighbours, which a thread takes some at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crucible.algebra.program import contiguous
from crucible.schedule.convolution.tiling import Tiling

MOST = 4
"""Neighbours of a thread: 16 bytes of float32."""


@dataclass(frozen=True)
class Rows:
    """What is written of a box of one channel, cut into runs that lie without gaps in every tensor."""

    tiling: Tiling
    tensors: tuple[tuple[int, ...], ...]
    """`plain` strides over [N, C, *spatial] of all that is read or written for each output."""
    dims: tuple[str, ...]
    most: int
    """Neighbours that a thread may take."""

    @cached_property
    def box(self) -> tuple[int, ...]:
        return self.tiling.made_box

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        return self.tiling.made_shape[2:]

    @cached_property
    def first(self) -> int:
        """The dim that runs begin with; they reach over all behind it."""
        first = len(self.box) - 1
        while first > 0 and self._go_on(first):
            first -= 1
        return first

    def _go_on(self, dim: int) -> bool:
        """Whether the one box of this dim has all of it (a second one may be there for products that no window has),
        and a step along the dim before it is as far as that, in every tensor."""
        if self.box[dim] != self.outputs[dim] or self.tiling.boxes[dim] > 1:
            return False
        return all(s[2 + dim - 1] == s[2 + dim] * self.outputs[dim] for s in self.tensors)

    @property
    def inner(self) -> int:
        """Outputs of a run at one place of its first dim."""
        return math.prod(self.box[self.first + 1 :])

    @property
    def run(self) -> int:
        return self.box[self.first] * self.inner

    @property
    def runs(self) -> int:
        return math.prod(self.box[: self.first])

    @cached_property
    def vector(self) -> int:
        """Neighbours that a thread takes: as many as divide every run and every distance between their begins."""
        box, last = self.box[self.first], self.outputs[self.first] % self.box[self.first]
        sizes = [self.run, last * self.inner]
        for strides in self.tensors:
            if strides[-1] not in (0, 1):
                return 1
            begins = [*strides[: 2 + self.first], box * strides[2 + self.first]]
            sizes += [step for step, n in zip(begins, self._begins, strict=True) if n > 1]
        return math.gcd(self.most, *sizes)

    @property
    def _begins(self) -> tuple[int, ...]:
        """How many places a run can begin at, along each dim up to its first."""
        boxes = self.tiling.boxes
        return (*self.tiling.made_shape[: 2 + self.first], boxes[self.first])

    @property
    def vectors(self) -> int:
        """Of a row."""
        return self.runs * self.run // self.vector


def plain(strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Strides that say nothing of dims of one element: as if the tensor were contiguous."""
    if not any(s for s, n in zip(strides, shape, strict=True) if n > 1):
        return (0,) * len(shape)
    return tuple(s if n > 1 else u for s, n, u in zip(strides, shape, contiguous(shape), strict=True))
