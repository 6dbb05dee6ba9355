"""What a thread that stages reads of a plane of input and writes to its slot: a position of all channels of a stage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from crucible.target.cuda import block, unrolled
from crucible.write.convolution.halo import STEP_UNITS, Halo, decoded, times
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup.streams import Streams


class Reading(Protocol):
    """Text for one of a plane's pieces, each of which a thread loads and stores."""

    @property
    def count(self) -> int:
        """Pieces of a plane."""

    @property
    def registers(self) -> int:
        """That a piece is held in."""

    def begin(self, d: str) -> list[str]:
        """Where stage `s` of image `n` is; of the plane `d`, where there are planes."""

    def held(self, together: int) -> list[str]:
        """Declares what so many pieces of a thread are held in."""

    def load(self, guarded: bool) -> list[str]:
        """Piece `number` becomes the `k`-th that is held. If `guarded` there may be none of that number."""

    def store(self, guarded: bool) -> list[str]:
        """It goes into `slot`."""


@dataclass(frozen=True)
class Positions:
    """Of a tensor laid like the input."""

    scene: Scene

    @property
    def _streams(self) -> Streams:
        assert isinstance(self.scene.tiling, Streams)
        return self.scene.tiling

    @property
    def count(self) -> int:
        """With those that dealing adds at the end."""
        staged, turn = math.prod(self._streams.staged_plane), 8 * self._streams.lane_stride
        return staged if self._streams.lane_stride == 1 else -(-staged // turn) * turn

    @property
    def registers(self) -> int:
        return STEP_UNITS * 4

    def begin(self, d: str) -> list[str]:
        source, streams = self.scene.conv.source, self._streams
        of_step = streams.unit * STEP_UNITS * source.strides[1]
        origin = f"{source.name} + n * {source.strides[0]}LL + s * {of_step}LL"
        return [f"const auto* const origin = {origin};", *([f"const int d = {d};"] if d else [])]

    def held(self, together: int) -> list[str]:
        return [f"uint4 words[{together}][{STEP_UNITS}];"]

    def load(self, guarded: bool) -> list[str]:
        words = unrolled("u", str(STEP_UNITS), [*self._word(), "words[k][u] = word;"])
        return [f"const int p = {self._position('number')};", *self._place(guarded), *words]

    def store(self, guarded: bool) -> list[str]:
        streams = self._streams
        word = ["uint4 word = words[k][u];", *self._converted(), f"slot[u * {streams.points} + {self._at()}] = word;"]
        guard = f"if (p < {math.prod(streams.staged_plane)})" if guarded or self._padded else ""
        position = f"const int p = {self._position('number')};"
        return [position, *block(guard, unrolled("u", str(STEP_UNITS), word))]

    @property
    def _padded(self) -> bool:
        return self.count > math.prod(self._streams.staged_plane)

    def _position(self, number: str) -> str:
        """Where positions are dealt, eight threads, which store 16 bytes each at a time, take eight that will be
        neighbours, and other eight those between."""
        stride = self._streams.lane_stride
        if stride == 1:
            return number
        return f"{number} / {8 * stride} * {8 * stride} + {number} % 8 * {stride} + {number} / 8 % {stride}"

    def _at(self) -> str:
        """Position p in its slot."""
        streams = self._streams
        columns, stride = streams.staged_plane[1], streams.lane_stride
        if stride == 1 and columns == streams.row_pitch:
            return "p"
        column = f"(p % {columns} + {streams.first_column})" if streams.first_column else f"p % {columns}"
        row = f"p / {columns} * {streams.row_pitch} + "
        if stride == 1:
            return row + column.strip("()")
        return f"{row}{column} % {stride} * {streams.lane_row} + {column} / {stride}"

    def _place(self, guarded: bool) -> list[str]:
        """Where position p is in the tensor, and whether it is inside."""
        streams, source, dims = self._streams, self.scene.conv.source, self.scene.dims
        rank, terms = len(streams.box), []
        tests = [f"p < {math.prod(streams.staged_plane)}"] if guarded or self._padded else []
        words = decoded("p", streams.staged_plane) if rank > 1 else ["p"]
        lines = []
        for dim, (name, axis) in enumerate(zip(dims, streams.of.axes, strict=True)):
            walked = streams.is_walked and dim == 0
            if not walked:
                more = first_of(streams, dim)
                moved = f" {'-' if more < 0 else '+'} {abs(more)}" if more else ""
                lines.append(f"const int {name} = {times(f'box_{name}', axis.in_stride)} + {words[dim - rank]}{moved};")
            planes = (streams.walk if walked else streams.box[dim]) * streams.places[dim]
            reached = (planes - 1) * axis.in_stride + axis.shifts[-1] + (streams.live - 1) * walked * axis.in_stride
            if axis.shifts[0] < 0 or reached >= axis.extent:
                tests.append(f"static_cast<unsigned>({name}) < {axis.extent}")
            terms.append(times(name, source.strides[2 + dim]))
        lines.append(f"const bool inside = {' && '.join(tests) or 'true'};")
        return [*lines, f"const auto* from = origin + {' + '.join(filter(None, terms)) or '0'};"]

    def _word(self) -> list[str]:
        """`word`: unit `u` of a position's channels. Where channels are neighbours in memory it is loaded at once."""
        streams, source = self._streams, self.scene.conv.source
        if not self._in_units:
            convert = WORDS[self.scene.conv.math].convert
            return Halo(streams.of, source, streams, "__float_as_uint" if streams.unit == 4 else convert).word("s")
        ragged = streams.of.in_channels % (streams.unit * STEP_UNITS)
        test = f"inside && (s * {STEP_UNITS} + u) * {streams.unit} < {streams.of.in_channels}" if ragged else "inside"
        return [
            "uint4 word = {};",
            f"if ({test}) word = *reinterpret_cast<const uint4*>(from + u * {streams.unit});",
        ]

    def _converted(self) -> list[str]:
        """`word`, as tensor cores take it."""
        convert = WORDS[self.scene.conv.math].convert
        if self._streams.unit == 8:
            return []
        return ["word = {" + ", ".join(f"{convert}(__uint_as_float(word.{part}))" for part in "xyzw") + "};"]

    @property
    def _in_units(self) -> bool:
        """Whether each unit of channels is 16 bytes in memory."""
        image, channel, *rest = self.scene.conv.source.strides
        unit, of = self._streams.unit, self._streams.of
        return channel == 1 and not any(n % unit for n in (of.in_channels, image, *rest))


def first_of(streams: Streams, dim: int) -> int:
    """The first of a box's rows or columns that is loaded, from what it begins with."""
    last = dim == len(streams.box) - 1
    return streams.of.axes[dim].shifts[0] + (streams.first_column if last else 0)
