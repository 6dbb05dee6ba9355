"""Gradients of windows in stages: what a pool's backward would write for another kernel to read is made where planes of
input are staged. A thread takes a window of a unit of channels and writes those of its elements that lie in the plane,
so an element costs no load, and no test but that it is the chosen one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crucible.target.cuda import CUDA_TYPES, block, converted, unrolled
from crucible.write.convolution.halo import STEP_UNITS, times
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup.stream_reading import first_of
from crucible.write.convolution.warpgroup.streams import Streams
from crucible.write.convolution.windows import Spread


@dataclass(frozen=True)
class WindowReading:
    """Of a tensor of windows: see `stream_reading.Reading`."""

    scene: Scene
    spread: Spread

    @property
    def _streams(self) -> Streams:
        assert isinstance(self.scene.tiling, Streams)
        return self.scene.tiling

    @property
    def _windows(self) -> tuple[int, int]:
        """Rows and columns of them that lie in a plane, or partly."""
        return self._streams.windows_of_plane

    @property
    def _sizes(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        return self._streams.window

    @property
    def count(self) -> int:
        return math.prod(self._windows) * STEP_UNITS

    @property
    def registers(self) -> int:
        return self._streams.unit * (2 if self.spread.choices else 1)

    def begin(self, d: str) -> list[str]:
        source, streams = self.scene.conv.source, self._streams
        at = f"n * {source.strides[0]}LL + s * {streams.unit * STEP_UNITS * source.strides[1]}LL"
        lines = [f"const int d = {d};"] if d else []
        if d:
            size, whole = self.spread.sizes[0], streams.of.axes[0].extent // self.spread.sizes[0]
            lines.append(f"const bool there = static_cast<unsigned>(d) < {whole * size};")
            at += f" + d / {size} * {source.strides[2]}"
            if self.spread.choices:
                lines.append(f"const int first_element = d % {size} * {math.prod(self._sizes)};  // in this plane")
        lines.append(f"const auto* const origin = {source.name} + {at};")
        if self.spread.choices:
            lines.append(f"const auto* const chosen = {self.spread.choices} + {at};")
        return lines

    def held(self, together: int) -> list[str]:
        unit = self._streams.unit
        lines = [f"{CUDA_TYPES[self.scene.conv.source.dtype]} value[{together}][{unit}];  // of windows"]
        if self.spread.choices:
            lines.append(f"unsigned char choice[{together}][{unit}];  // the element that has it")
        return lines

    def load(self, guarded: bool) -> list[str]:
        source, streams = self.scene.conv.source, self._streams
        tests, terms, lines = [f"number < {self.count}"] if guarded else [], [], self._window()
        tests += ["there"] if streams.is_walked else []
        for dim, word in self._dims():
            axis, size, name = streams.of.axes[dim], self.spread.sizes[dim], self.scene.dims[dim]
            begin = f"{times(f'box_{name}', axis.in_stride)} / {size} + " if streams.places[dim] > 1 else ""
            far = first_of(streams, dim) // size
            moved = f" {'-' if far < 0 else '+'} {abs(far)}" if far else ""
            lines.append(f"const int {name} = {begin}{word}{moved};")
            tests.append(f"static_cast<unsigned>({name}) < {axis.extent // size}")
            terms.append(times(name, source.strides[2 + dim]))
        lines.append(f"const bool inside = {' && '.join(tests)};")
        lines.append(f"const int at = {' + '.join(terms)} + u * {streams.unit * source.strides[1]};")
        lines.append("const auto* values = origin + at;")
        lines += ["const auto* choices = chosen + at;"] if self.spread.choices else []
        return [*lines, *unrolled("j", str(streams.unit), self._channel())]

    def _channel(self) -> list[str]:
        """Of a window."""
        source, streams = self.scene.conv.source, self._streams
        zero, at = converted("0.0f", "float32", source.dtype), times("j", source.strides[1])
        test, channels = "inside", streams.unit * STEP_UNITS
        if streams.of.in_channels % channels:
            test = f"inside && s * {channels} + u * {streams.unit} + j < {streams.of.in_channels}"
        lines = [f"value[k][j] = {test} ? values[{at}] : {zero};"]
        return [*lines, *([f"choice[k][j] = {test} ? choices[{at}] : 0;"] if self.spread.choices else [])]

    def store(self, guarded: bool) -> list[str]:
        streams, words = self._streams, WORDS[self.scene.conv.math]
        element = [f"unsigned word[{streams.unit}];"]
        element += unrolled("j", str(streams.unit), [f"word[j] = {words.convert}(value[k][j]);"])
        element += unrolled("e", str(math.prod(self._sizes)), self._element())
        guard = f"if (number < {self.count})" if guarded else ""
        return [*self._window(), *(block(guard, element) if guard else element)]

    def _element(self) -> list[str]:
        """Element e of the window's in the plane, where it is loaded."""
        streams, (rows, columns) = self._streams, self._streams.staged_plane
        lines, tests = [], []
        places = (f"e / {self._sizes[1]}", f"e % {self._sizes[1]}")
        for name, word, place, size, count, staged, before in zip(
            ("row", "column"), ("window_row", "window_column"), places, self._sizes, self._windows, (rows, columns),
            streams.before_window, strict=True,
        ):  # fmt: skip
            moved = f" - {before}" if before else ""
            lines.append(f"const int {name} = {times(word, size)} + {place}{moved};")
            if before or count * size > staged:
                tests.append(f"static_cast<unsigned>({name}) < {staged}")
        stored = f"slot[u * {streams.points} + {self._at()}] = make_uint4({', '.join(map(self._word, range(4)))});"
        return [*lines, *block(f"if ({' && '.join(tests)})" if tests else "", [stored])]

    def _word(self, number: int) -> str:
        if self._streams.unit == 4:
            return self._of_element(number)
        return f"{self._of_element(2 * number)} | {self._of_element(2 * number + 1)} << 16"

    def _of_element(self, j: int) -> str:
        """What element e has of a channel's value."""
        if not self.spread.choices:
            return f"word[{j}]"
        element = "first_element + e" if self._streams.is_walked else "e"
        return f"(choice[k][{j}] == {element} ? word[{j}] : 0u)"

    def _at(self) -> str:
        """A row and a column of what is loaded, in its slot."""
        streams = self._streams
        column = f"(column + {streams.first_column})" if streams.first_column else "column"
        row = f"row * {streams.row_pitch} + "
        if streams.lane_stride == 1:
            return row + column.strip("()")
        return f"{row}{column} % {streams.lane_stride} * {streams.lane_row} + {column} / {streams.lane_stride}"

    def _window(self) -> list[str]:
        """Which window and unit of channels piece `number` is."""
        windows, (_, columns) = math.prod(self._windows), self._windows
        return [
            f"const int u = number / {windows}, window = number % {windows};",
            f"const int window_row = window / {columns}, window_column = window % {columns};",
        ]

    def _dims(self) -> list[tuple[int, str]]:
        """Those of a plane, and the window's number along each."""
        rank = len(self._streams.box)
        words = {rank - 2: "window_row", rank - 1: "window_column"}
        return [(dim, word) for dim, word in words.items() if dim >= 0]
