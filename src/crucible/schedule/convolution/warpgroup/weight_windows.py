"""Gradients of strided convolutions' weights from a pool's gradient, window by window.

Where windows are as far as a position's stride, an element is one of a window: that of the position along dims whose
taps are moved (see `weight_moves.py`), that or a neighbour along the last dim. So the source is staged as a copy for
each tap of all dims, made of one value and one choice a window, and a plane of positions reads one plane of windows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from crucible.algebra.convolution.correlation import Axis, Correlation, Tap
from crucible.algebra.convolution.windows import Spread
from crucible.schedule.convolution.warpgroup.weight_moves import Moves, moved


@dataclass(frozen=True)
class Element:
    """What a tap reads."""

    number: int
    """Within its window."""
    on: int
    """Its window from the position's, along the last dim."""
    taps: tuple[int, ...]
    """Numbers along all dims."""


@dataclass(frozen=True)
class Windowed:
    """A source with a value for each window, that of its chosen element."""

    spread: Spread
    elements: tuple[Element, ...]
    """By tap."""

    @property
    def groups(self) -> int:
        """Of elements, those that differ along the last dim alone: so many, numbered one after the other."""
        return math.prod(self.spread.sizes[:-1])

    @property
    def first(self) -> int:
        """The first window that a position reads."""
        return min(each.on for each in self.elements)

    @property
    def shifts(self) -> tuple[int, ...]:
        """Of the taps, from that."""
        return tuple(each.on - self.first for each in self.elements)


def windowed(of: Correlation, spread: Spread) -> Iterator[tuple[Correlation, Moves, Windowed]]:
    """The correlations of windows that a correlation of their elements is; none where windows and strides differ, where
    a window's elements all have its value, or where taps of the outer dims do not read each element of the position's
    window, and of no other."""
    if tuple(axis.in_stride for axis in of.axes) != spread.sizes or not spread.choices:
        return
    for each, moves in moved(of):
        found = [sorted(axis.phases[0], key=lambda tap: tap.shift) for axis in each.axes[:-1]]
        if any([tap.shift for tap in taps] != [*range(size)] for taps, size in zip(found, spread.sizes, strict=False)):
            continue
        outer, last = [[(0, tap) for tap in taps] for taps in found], each.axes[-1]
        inner = [(tap.shift // last.in_stride, tap) for tap in last.phases[0]]
        elements = tuple(_element(taps, spread.sizes) for taps in itertools.product(*outer, inner))
        yield replace(each, axes=tuple(map(_of_windows, each.axes))), moves, Windowed(spread, elements)


def _element(found: tuple[tuple[int, Tap], ...], sizes: tuple[int, ...]) -> Element:
    number = 0
    for (_, tap), size in zip(found, sizes, strict=True):
        number = number * size + tap.shift % size
    return Element(number, found[-1][0], tuple(tap.number for _, tap in found))


def _of_windows(axis: Axis) -> Axis:
    return Axis(axis.extent // axis.in_stride, axis.outputs, 1, 1, ((Tap(0, 0),),), 1)
