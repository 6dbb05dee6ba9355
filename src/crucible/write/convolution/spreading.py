"""Gradients of windows in shared memory, as those of the windows' elements: what a pool's backward would write for
another kernel to read is made where that reads it.

A thread takes a window that lies in a region of elements, or partly, and writes those of its elements that do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crucible.write.convolution.correlation import Correlation
from crucible.write.convolution.halo import DIMS, STEP_UNITS, THREADS, Boxes, decoded, times
from crucible.write.convolution.pieces import Words
from crucible.write.convolution.windows import Spread
from crucible.write.families.source import block, unrolled
from crucible.write.program import Operand, contiguous


@dataclass(frozen=True)
class Side:
    """A region of the elements along one dim."""

    name: str
    start: str
    """Its first element, which may lie before the tensor's."""
    first: int
    """The first of its starts; the others are beyond that by multiples of `step`."""
    step: int
    extent: int
    """Its elements."""
    elements: int
    """Of the whole tensor."""
    stride: int
    """Of the tensor of windows."""
    size: int
    """Of a window."""

    @property
    def outputs(self) -> int:
        """Windows of the tensor."""
        return self.elements // self.size

    @property
    def windows(self) -> int:
        """In the region, or partly."""
        before = self.first % self.size if self.step % self.size == 0 else self.size - 1
        return (before + self.extent - 1) // self.size + 1

    @property
    def first_window(self) -> str:
        """The number of the window that the region begins in, rounded down."""
        far = max(0, -(self.first // self.size))
        moved = f"{self.start} + {far * self.size}" if far else self.start
        return f"({moved}) / {self.size} - {far}" if far else f"({moved}) / {self.size}"


@dataclass(frozen=True)
class Spreading:
    """Text that fills a region from a tensor of windows."""

    spread: Spread
    sides: tuple[Side, ...]
    outer: int
    """How many of each window there are: channels, or units of them."""

    def fill(self, values: Sequence[str], stored: Sequence[str]) -> list[str]:
        """`values` reads what lies `from` the tensor's first window, where `inside` says that it is there, of number
        `u` of the outer ones; `stored` writes element `e` to `to_*`, its place in the region."""
        counts = [side.windows for side in self.sides]
        first = [f"const int first_{side.name} = {side.first_window};  // of windows" for side in self.sides]
        words = decoded("p", (self.outer, *counts))
        lines, tests, terms = [f"const int u = {words[0]};"], [], []
        for side, word in zip(self.sides, words[1:], strict=True):
            lines.append(f"const int {side.name} = first_{side.name}{'' if word == '0' else f' + {word}'};")
            tests.append(f"static_cast<unsigned>({side.name}) < {side.outputs}")
            terms.append(times(side.name, side.stride))
        lines.append(f"const bool inside = {' && '.join(tests)};")
        lines += [f"const int from = {' + '.join(filter(None, terms)) or '0'};", *values]
        lines += unrolled("e", str(math.prod(self.spread.sizes)), self._element(stored))
        loop = f"for (int p = threadIdx.x; p < {math.prod(counts) * self.outer}; p += {THREADS})"
        return [*first, *block(loop, lines)]

    def _element(self, stored: Sequence[str]) -> list[str]:
        lines, tests = [], []
        for side, word in zip(self.sides, decoded("e", self.spread.sizes), strict=True):
            moved = "" if word == "0" else f" + {word}"
            lines.append(f"const int to_{side.name} = {times(side.name, side.size)}{moved} - ({side.start});")
            tests.append(f"static_cast<unsigned>(to_{side.name}) < {side.extent}")
        return [*lines, *block(f"if ({' && '.join(tests)})", stored)]

    def of_element(self, value: str, choice: str) -> str:
        """What element `e` has of its window's value."""
        return f"({choice} == e ? {value} : 0u)" if self.spread.choices else value


@dataclass(frozen=True)
class SpreadHalo:
    """A halo (see `halo.py`) that is filled from a tensor of windows."""

    of: Correlation
    source: Operand
    tiling: Boxes
    words: Words
    spread: Spread
    choices: str
    """What the tensor of choices is called in the kernel."""

    def fill(self, word: str, step: str) -> list[str]:
        """As `Halo.fill`; a thread takes a window of a unit of channels."""
        tiling, source, unit = self.tiling, self.source, self.tiling.unit
        base = f"n * {source.strides[0]}LL"
        if self.of.groups > 1:
            base += f" + group * {self.of.in_channels * source.strides[1]}LL"
        if step != "0":
            base += f" + {step} * {unit * STEP_UNITS * source.strides[1]}LL"
        lines = [f"const auto* origin = {word} + {base};"]
        if self.spread.choices:
            lines.append(f"const auto* chosen = {self.choices} + {base};")
        work = Spreading(self.spread, self._sides(), tiling.staged * STEP_UNITS)
        return [*lines, *work.fill(self._values(step), self._stored(work))]

    def _sides(self) -> tuple[Side, ...]:
        tiling, names = self.tiling, DIMS[-len(self.of.axes) :]
        found = []
        for dim, (axis, name) in enumerate(zip(self.of.axes, names, strict=True)):
            first = axis.shifts[0]
            moved = f" {'-' if first < 0 else '+'} {abs(first)}" if first else ""
            start = f"{times(f'box_{name}', axis.in_stride)}{moved}"
            step = 0 if tiling.boxes[dim] == 1 else tiling.box[dim] * axis.in_stride
            stride, size = self.source.strides[2 + dim], self.spread.sizes[dim]
            found.append(Side(name, start, first, step, tiling.halo[dim], axis.extent, stride, size))
        return tuple(found)

    def _values(self, step: str) -> list[str]:
        """Of the channels of unit u."""
        unit, stride = self.tiling.unit, self.source.strides[1]
        test, channels = "inside", unit * STEP_UNITS
        if self.of.in_channels % channels or self.tiling.steps % self.tiling.staged:
            start = "" if step == "0" else f"{step} * {channels} + "
            test = f"inside && {start}u * {unit} + k < {self.of.in_channels}"
        at = f"from + (u * {unit} + k) * {stride}"
        value = f"static_cast<unsigned>({self.words.convert}(origin[{at}]))"
        inner = [f"const bool there = {test};", f"value[k] = there ? {value} : 0u;"]
        lines = [f"unsigned value[{unit}];"]
        if self.spread.choices:
            lines.append(f"int choice[{unit}];  // the element that has it")
            inner.append(f"choice[k] = there ? chosen[{at}] : 0;")
        return [*lines, *unrolled("k", str(unit), inner)]

    def _stored(self, work: Spreading) -> list[str]:
        def of(k: int) -> str:
            return work.of_element(f"value[{k}]", f"choice[{k}]")

        words = [of(k) for k in range(4)]
        if self.tiling.unit == 8:
            words = [f"{of(2 * k)} | {of(2 * k + 1)} << 16" for k in range(4)]
        tiling, last = self.tiling, f"to_{DIMS[-1]}"
        terms = [
            times(f"to_{side.name}", stride)
            for side, stride in zip(work.sides[:-1], contiguous(tiling.stored), strict=False)
        ]
        if tiling.lane_stride > 1:  # as `halo.py` deals them
            last = f"{last} % {tiling.lane_stride} * {tiling.lane_row} + {last} / {tiling.lane_stride}"
        place = " + ".join([*terms, last])
        to = f"reinterpret_cast<uint4*>(halo)[u * {tiling.points} + {place}]"
        return [f"{to} = make_uint4({', '.join(words)});"]
