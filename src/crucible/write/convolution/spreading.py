"""Gradients of windows in shared memory, as those of the windows' elements: what a pool's backward would write for
another kernel to read is made where that reads it.

A thread takes a window that lies in a region of elements, or partly, and writes those of its elements that do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crucible.target.cuda import CUDA_TYPES, block, converted, indented, unrolled
from crucible.write.convolution.correlation import Correlation
from crucible.write.convolution.halo import DIMS, HELD, STEP_UNITS, THREADS, Boxes, decoded, times
from crucible.write.convolution.pieces import Words
from crucible.write.convolution.windows import Spread
from crucible.write.program import Operand, contiguous

SPREAD = "It reads gradients of windows, and spreads them over the windows' elements in shared memory."
"""In a kernel's description."""


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

    @property
    def count(self) -> int:
        """Of windows, each as often as there are."""
        return math.prod(side.windows for side in self.sides) * self.outer

    def rounds(self, held: int) -> int:
        """In which a thread takes a window each, of at most `held` at once."""
        return min(held, -(-self.count // THREADS))

    def fill(self, held: int, values: Sequence[str], words: Sequence[str], stored: Sequence[str]) -> list[str]:
        """What `load` reads is stored at once."""
        rounds, all_ = self.rounds(held), -(-self.count // THREADS)
        if rounds == all_:
            return [*self.load(held, values), *self.store(held, words, stored)]
        lines = [*self.load(held, values, "begin"), *self.store(held, words, stored, "begin")]
        return block(f"for (int begin = 0; begin < {all_}; begin += {rounds})", lines)

    def load(self, held: int, values: Sequence[str], begin: str = "") -> list[str]:
        """`values` reads what lies `from` the tensor's first window, where `inside` says that it is there, of number
        `u` of the outer ones, in round `r`."""
        first = [f"const int first_{side.name} = {side.first_window};  // of windows" for side in self.sides]
        tests = [f"p < {self.count}"] if self.count % (THREADS * self.rounds(held)) else []
        tests += [f"static_cast<unsigned>({side.name}) < {side.outputs}" for side in self.sides]
        terms = [times(side.name, side.stride) for side in self.sides]
        lines = [*self._window(begin), f"const bool inside = {' && '.join(tests)};"]
        lines += [f"const int from = {' + '.join(filter(None, terms)) or '0'};", *values]
        return [*first, *unrolled("r", str(self.rounds(held)), lines)]

    def store(self, held: int, words: Sequence[str], stored: Sequence[str], begin: str = "") -> list[str]:
        """`words` makes of what was read in round `r` what is kept of it, and `stored` writes that of element `e` to
        `to_*`, its place in the region."""
        first = [f"const int first_{side.name} = {side.first_window};" for side in self.sides]
        guard = [f"if (p >= {self.count}) continue;"] if self.count % (THREADS * self.rounds(held)) else []
        elements = unrolled("e", str(math.prod(self.spread.sizes)), self._element(stored))
        lines = unrolled("r", str(self.rounds(held)), [*self._window(begin, guard), *words, *elements])
        return ["{", *indented([*first, *lines]), "}"]

    def _window(self, begin: str, guard: Sequence[str] = ()) -> list[str]:
        """Which one a thread takes."""
        words = decoded("p", (self.outer, *(side.windows for side in self.sides)))
        round_ = f"({begin} + r)" if begin else "r"
        lines = [f"const int p = threadIdx.x + {round_} * {THREADS};", *guard, f"const int u = {words[0]};"]
        for side, word in zip(self.sides, words[1:], strict=True):
            lines.append(f"const int {side.name} = first_{side.name}{'' if word == '0' else f' + {word}'};")
        return lines

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

    @property
    def is_held(self) -> bool:
        """Whether a thread can hold what it reads beside the multiplication before."""
        return self._work.count <= THREADS * self._most

    def held(self) -> list[str]:
        """Declares what it holds."""
        rounds, unit = self._work.rounds(self._most), self.tiling.unit
        lines = [f"{CUDA_TYPES[self.source.dtype]} value[{rounds}][{unit}];  // of windows"]
        if self.spread.choices:
            lines.append(f"unsigned char choice[{rounds}][{unit}];  // the element that has it")
        return lines

    def fill(self, word: str, step: str) -> list[str]:
        """As `Halo.fill`; a thread takes a window of a unit of channels."""
        filled = self._work.fill(self._most, self._values(step), self._words(), self._stored())
        return [*self._origins(word, step), *self.held(), *filled]

    def load(self, word: str, step: str) -> list[str]:
        """The same into what is held; `store` must follow, by the same threads, at the same `box_*`."""
        return [*self._origins(word, step), *self._work.load(self._most, self._values(step))]

    def store(self) -> list[str]:
        """What is held, to the halo."""
        return self._work.store(self._most, self._words(), self._stored())

    @property
    def _most(self) -> int:
        return HELD // self.tiling.unit

    @cached_property
    def _work(self) -> Spreading:
        return Spreading(self.spread, self._sides(), self.tiling.staged * STEP_UNITS)

    def _origins(self, word: str, step: str) -> list[str]:
        source = self.source
        base = f"n * {source.strides[0]}LL"
        if self.of.groups > 1:
            base += f" + group * {self.of.in_channels * source.strides[1]}LL"
        if step != "0":
            base += f" + {step} * {self.tiling.unit * STEP_UNITS * source.strides[1]}LL"
        lines = [f"const auto* origin = {word} + {base};"]
        return lines + [f"const auto* chosen = {self.choices} + {base};"] * bool(self.spread.choices)

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
        inner = [
            f"const bool there = {test};",
            f"value[r][k] = there ? origin[{at}] : {converted('0.0f', 'float32', self.source.dtype)};",
        ]
        if self.spread.choices:
            inner.append(f"choice[r][k] = there ? chosen[{at}] : 0;")
        return unrolled("k", str(unit), inner)

    def _words(self) -> list[str]:
        unit = self.tiling.unit
        return [
            f"unsigned word[{unit}];",
            *unrolled("k", str(unit), [f"word[k] = {self.words.convert}(value[r][k]);"]),
        ]

    def _stored(self) -> list[str]:
        work = self._work

        def of(k: int) -> str:
            return work.of_element(f"word[{k}]", f"choice[r][{k}]")

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
