"""Pools: the largest or the mean value of each window of a tensor, with a chain before and a chain after.

    outer dims (batch, channels)   spatial dims (1 to 3)
    operands         tensors laid over the input's space, which the chain before reads
    after_operands   tensors laid over the output's space, which the chain after reads beside the pool's value
    result           a value for each window

`pool_forward` and `pool_backward` turn pools into CUDA C++.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from crucible.algebra.expression import Expr, inputs, name_of, tensor
from crucible.algebra.program import Operand, Result
from crucible.errors import MisuseError

KINDS = ("max", "avg")
POOLED = "pooled"
"""The tensor that the chain after reads as the pool's value."""


@dataclass(frozen=True)
class Window:
    """How windows lie along one spatial dim."""

    size: int
    """Elements of a window; of the largest one, if adaptive."""
    stride: int
    """From the start of one window to that of the next, in elements; not used if adaptive."""
    extent: int
    """Elements of the input."""
    outputs: int
    """Windows. With ceil_mode the last may reach over the end."""
    padding: int = 0
    """Elements before the input at which the first window starts."""
    dilation: int = 1
    """From one element of a window to its next."""
    adaptive: bool = False
    """Windows of unequal size: from floor(o * extent / outputs) to ceil((o + 1) * extent / outputs)."""

    def elements(self, output: int) -> range:
        """The elements of one window, padding left out."""
        if self.adaptive:
            return range(output * self.extent // self.outputs, -(-(output + 1) * self.extent // self.outputs))
        start = output * self.stride - self.padding
        inside = [i for i in range(start, start + self.size * self.dilation, self.dilation) if 0 <= i < self.extent]
        return range(inside[0], inside[-1] + 1, self.dilation) if inside else range(0)

    @property
    def apart(self) -> bool:
        """Whether no element is in two windows and each window starts inside."""
        return not self.adaptive and self.padding == 0 and self.dilation == 1 and self.stride >= self.size

    @property
    def tiles(self) -> bool:
        """Whether every element is in exactly one window, and no window reaches over an end."""
        return self.apart and self.stride == self.size and self.outputs * self.size == self.extent

    @property
    def before_start(self) -> bool:
        """Whether a window reaches over the first element."""
        return self.padding > 0

    @property
    def over_end(self) -> bool:
        """Whether a window reaches over the last element."""
        last = (self.outputs - 1) * self.stride - self.padding + (self.size - 1) * self.dilation
        return not self.adaptive and last >= self.extent


def adaptive(extent: int, outputs: int) -> Window:
    """The windows of adaptive pools; ordinary ones where they are of equal size."""
    if extent % outputs == 0:
        return Window(extent // outputs, extent // outputs, extent, outputs)
    ends = Window(1, 1, extent, outputs, adaptive=True)
    return replace(ends, size=max(len(ends.elements(output)) for output in range(outputs)))


@dataclass(frozen=True)
class Pool:
    """One pooling with its chains. Names are unique among operands, after_operands and the result."""

    name: str
    """A C++ identifier."""
    kind: str
    """`max` or `avg`."""
    outer: tuple[int, ...]
    """Sizes of the dims that are not pooled: batch and channels."""
    windows: tuple[Window, ...]
    """One for each spatial dim, one to three."""
    operands: tuple[Operand, ...]
    """Laid over outer and input dims."""
    before: Expr
    """The chain whose values are pooled, of `operands`; their leaf itself where there is none. What PyTorch stores
    before it pools has its cast here."""
    after_operands: tuple[Operand, ...]
    """Laid over outer and output dims."""
    result: Result
    """Laid over outer and output dims, in any order of strides. `expr` is the chain after: of `tensor("pooled")` and
    `after_operands`. `sums` is not for pools."""
    count_include_pad: bool = True
    """Whether the padding counts as elements of an average; what lies beyond the padding never does."""
    divisor: int | None = None
    """What an average divides by, instead of a count."""
    precision: str = "float32"
    """What is computed in: `float32`, or `float64` for float64 tensors."""

    def __post_init__(self) -> None:
        """Raises MisuseError for what PyTorch refuses as well, and for windows in which no element lies."""
        if self.kind not in KINDS or not 1 <= len(self.windows) <= 3:
            raise MisuseError(f"{self.name}: a pool is {' or '.join(KINDS)} over 1 to 3 dims, not {self.kind!r}"
                              f" over {len(self.windows)}")  # fmt: skip
        if started := [each.name for each in (*self.operands, *self.after_operands) if each.start]:
            raise MisuseError(f"{self.name}: operands of pools begin where their tensors do, not {', '.join(started)}")
        for window in self.windows:
            if not all(window.elements(output) for output in range(window.outputs)):
                raise MisuseError(f"{self.name}: {window} has windows without an element: pad less")
            if self.kind == "avg" and window.dilation != 1:
                raise MisuseError(f"{self.name}: an average pool has no dilation, not {window.dilation}")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (*self.outer, *(window.extent for window in self.windows))

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (*self.outer, *(window.outputs for window in self.windows))

    @property
    def after(self) -> Expr:
        """The chain after."""
        return self.result.expr

    @property
    def pooled(self) -> Expr:
        """The leaf by which the chain after reads the pool's value."""
        found = [leaf for leaf in inputs(self.after) if name_of(leaf) == POOLED]
        return found[0] if found else tensor(POOLED)

    @property
    def apart(self) -> bool:
        """Whether no element is in two windows."""
        return all(window.apart for window in self.windows)

    @property
    def count(self) -> int | None:
        """What an average divides by, if that is the same for all windows."""
        if self.divisor is not None:
            return self.divisor
        counts = [{self.counted(window, output) for output in range(window.outputs)} for window in self.windows]
        return math.prod(each.pop() for each in counts) if all(len(each) == 1 for each in counts) else None

    def counted(self, window: Window, output: int) -> int:
        """How many elements of a window count along one dim."""
        if window.adaptive or not self.count_include_pad:
            return len(window.elements(output))
        start = output * window.stride - window.padding
        return min(start + window.size, window.extent + window.padding) - start

    def moves(self, operand: Operand) -> bool:
        """Whether an operand of the chain before differs between elements of a window."""
        strides = operand.strides[len(self.outer) :]
        return any(stride and window.extent > 1 for stride, window in zip(strides, self.windows, strict=True))

    def elements(self) -> int:
        """Elements of the largest window."""
        return math.prod(window.size for window in self.windows)


def collapsed_pool(pool: Pool) -> Pool:
    """The same with as few outer dims as possible: without dims of one element, neighbours merged where every tensor
    goes through both as through one."""
    slim = _keeping(pool, [dim for dim, size in enumerate(pool.outer) if size != 1])
    dim = 0
    while dim + 1 < len(slim.outer):
        step = slim.outer[dim + 1]
        joins = all(s[dim] == s[dim + 1] * step for s in _strides(slim))
        if joins:
            merged = replace(slim, outer=(*slim.outer[:dim], slim.outer[dim] * step, *slim.outer[dim + 2 :]))
            slim = _changed(merged, lambda s, dim=dim: s[:dim] + s[dim + 1 :])  # type: ignore[misc]
        else:
            dim += 1
    return slim


def _strides(pool: Pool) -> list[tuple[int, ...]]:
    return [*(each.strides for each in (*pool.operands, *pool.after_operands)), pool.result.strides]


def _keeping(pool: Pool, kept: list[int]) -> Pool:
    rank = len(pool.outer)
    slim = _changed(pool, lambda strides: (*(strides[dim] for dim in kept), *strides[rank:]))
    return replace(slim, outer=tuple(pool.outer[dim] for dim in kept))


def _changed(pool: Pool, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Pool:
    return replace(
        pool,
        operands=tuple(replace(each, strides=change(each.strides)) for each in pool.operands),
        after_operands=tuple(replace(each, strides=change(each.strides)) for each in pool.after_operands),
        result=replace(pool.result, strides=change(pool.result.strides)),
    )
