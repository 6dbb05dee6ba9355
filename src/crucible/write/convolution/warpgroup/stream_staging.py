"""How stages come into their slots: planes of input by two warpgroups, weights by a bulk copy beside them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crucible.write.convolution.halo import STEP_UNITS, Halo, decoded, times
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup.streams import STAGERS, Streams
from crucible.write.convolution.warpgroup.walks import WARPS
from crucible.write.families.source import block, unrolled

THREADS = STAGERS * WARPS * 32
MOST_TOGETHER = 5
"""Positions that a thread has on their way at once: 40 of its registers."""


@dataclass(frozen=True)
class Stages:
    """Text of the warpgroups that stage, and where items are."""

    scene: Scene

    @property
    def _streams(self) -> Streams:
        assert isinstance(self.scene.tiling, Streams)
        return self.scene.tiling

    # items

    def each_item(self, lines: list[str]) -> list[str]:
        """The loop over the block's items."""
        scene = self.scene
        first = f"static_cast<int>(blockIdx.x) / {scene.parts}"
        head = f"for (int item = {first}; item < {self._streams.items}; item += {scene.blocks_a_part})"
        return block(head, [*self._item(), *lines])

    def _item(self) -> list[str]:
        """Where an item is, and how many planes of outputs it has."""
        streams, dims = self._streams, self.scene.dims
        words = decoded("item", (streams.of.batch, *streams.places))
        lines = [f"const int n = {words[0]};"]
        sizes = [streams.walk, *streams.box[1:]] if streams.is_walked else streams.box
        for name, word, size in zip(dims, words[1:], sizes, strict=True):
            start = word if size == 1 or word == "0" else f"({word}) * {size}"
            walked = streams.is_walked and name == "d"
            lines.append(f"const int {'first_plane' if walked else f'box_{name}'} = {start};")
        whole = streams.boxes[0] if streams.is_walked else 1
        count = str(streams.walk) if whole % streams.walk == 0 else f"min({streams.walk}, {whole} - first_plane)"
        return [*lines, f"const int planes = {count};"]

    def each_stage(self, before: list[str], of_part: dict[int, list[str]], after: dict[int, list[str]]) -> list[str]:
        """The loops over an item's planes of outputs t, and of each over parts and steps s, in the order in which all
        warps go through them: what is done before the first part, of each stage, and after a part."""
        streams, steps = self._streams, f"for (int s = 0; s < {self._streams.steps}; ++s)"
        if not streams.once:
            stages, parts = of_part[0], len(of_part)  # of one block each, and of the same taps
            if parts > 1:
                stages = block(f"for (int m = 0; m < {parts}; ++m)", stages)
            body = [*before, *block(steps, stages), *after[streams.last_part]]
            return block("for (int t = 0; t < planes; ++t)", body)
        body, more = [*before], streams.live - 1
        for number, part in of_part.items():
            if number == streams.last_part + 1:
                body.append(f"if (t == {_after('planes', more - 1)}) break;  // no plane of this item reads more")
            body += [*block(steps, part), *after.get(number, [])]
        return block(f"for (int t = 0; t < {_after('planes', more)}; ++t)", body)

    # staging

    def zeros(self) -> list[str]:
        """What is never loaded is 0 once and for all."""
        streams = self._streams
        if streams.staged_plane == streams.plane:
            return []
        units = f"p / {streams.plane_units} * {streams.slot_units} + p % {streams.plane_units}"
        return [
            f"for (int p = threadIdx.x; p < {streams.slots * streams.plane_units}; p += {streams.threads})"
            f" ring[{units}] = uint4{{}};"
        ]

    def lines(self) -> list[str]:
        scene, streams = self.scene, self._streams
        source = f"{scene.word[scene.conv.source.name]} + n * {scene.conv.source.strides[0]}LL"
        packed = f"reinterpret_cast<const uint4*>({scene.word[scene.packed.name]})"
        if streams.channel_tiles > 1:
            packed += f" + part * {streams.packed_units}"
        return [
            f"const int thread = threadIdx.x % {THREADS};",
            f"const uint4* const packed_units = {packed};",
            "int stage = 0;",
            *self.each_item([f"const auto* const of_image = {source};", *self._all()]),
        ]

    def _all(self) -> list[str]:
        """All stages of an item in the order of `each_stage`, by one text for all parts m."""
        streams, steps = self._streams, f"for (int s = 0; s < {self._streams.steps}; ++s)"
        count, more = len(streams.parts), streams.live - 1
        parts, planes = f"for (int m = 0; m < {count}; ++m)", f"for (int t = 0; t < {_after('planes', more)}; ++t)"
        if not streams.once:
            return block(planes, block(steps, block(parts, self._stage()) if count > 1 else self._stage()))
        if count == 1:
            return block(planes, block(steps, self._stage()))
        left = []
        if streams.last_part + 1 < count:
            left = [f"if (t == {_after('planes', more - 1)} && m == {streams.last_part + 1}) break;"]
        return block(planes, block(parts, [*left, *block(steps, self._stage())]))

    def _stage(self) -> list[str]:
        """Positions are loaded first, then the slot is waited for, then weights are asked for and positions stored."""
        streams, parts = self._streams, self._streams.parts
        slot = f"stage % {streams.slots}"
        of_step = streams.unit * STEP_UNITS * self.scene.conv.source.strides[1]
        ask = [
            f"const int units = {self._of_part([streams.weight_units(part) for part in parts])};",
            f"const uint4* from_units = packed_units + {self._of_part(streams.begins)} + s * units;",
            f"expect(loaded + {slot}, units * 16);",
            f"copy_in(slot + {streams.plane_units}, from_units, units * 16, loaded + {slot});",
        ]
        return [
            f"uint4* const slot = ring + {slot} * {streams.slot_units};",
            f"const auto* const origin = of_image + s * {of_step}LL;",
            *self._depth(),
            *self._load(ask),
            "publish();",
            f"arrive(loaded + {slot});",
            "++stage;",
        ]

    def _of_part(self, values: Sequence[int]) -> str:
        """Of part m."""
        steps = {after - before for before, after in itertools.pairwise(values)}
        if len(steps) > 1:
            choices = "".join(f"m == {number} ? {value} : " for number, value in enumerate(values[:-1]))
            return f"({choices}{values[-1]})"
        step = times("m", steps.pop()) if steps else ""
        return f"({values[0]} + {step})" if step and values[0] else step or str(values[0])

    def _depth(self) -> list[str]:
        streams = self._streams
        if not streams.is_walked:
            return []
        axis = streams.of.axes[0]
        shifts = self._of_part([part.shift + axis.shifts[0] for part in streams.parts])
        return [f"const int d = {times('(first_plane + t)', axis.in_stride)} + {shifts};"]

    @cached_property
    def _rounds(self) -> tuple[int, int]:
        """Positions of a thread at once, and how often."""
        rounds = -(-self._numbered // THREADS)
        turns = -(-rounds // MOST_TOGETHER)
        return -(-rounds // turns), turns

    @property
    def _numbered(self) -> int:
        """Positions with those that dealing adds at the end."""
        staged, turn = math.prod(self._streams.staged_plane), 8 * self._streams.lane_stride
        return staged if self._streams.lane_stride == 1 else -(-staged // turn) * turn

    def _load(self, ask: list[str]) -> list[str]:
        """What is loaded is not touched before the slot is waited for: so nvcc leaves all loads in a row (36 of 40 of
        P38's input gradient). Where they were rounded at once, the 24th waited for the 16th and so on."""
        streams = self._streams
        staged = math.prod(streams.staged_plane)
        together, turns = self._rounds
        round_ = f"(turn * {together} + k)" if turns > 1 else "k"
        position = [f"const int number = thread + {round_} * {THREADS};", f"const int p = {self._position('number')};"]
        load = [*position, *self._place(), *unrolled("u", str(STEP_UNITS), [*self._word(), "words[k][u] = word;"])]
        store = ["uint4 word = words[k][u];", *self._converted(), f"slot[u * {streams.points} + {self._at()}] = word;"]
        guard = f"if (p < {staged})" if together * turns * THREADS > staged else ""
        stores = [*position, *block(guard, unrolled("u", str(STEP_UNITS), store))]
        first = "thread == 0 && turn == 0" if turns > 1 else "thread == 0"
        lines = [
            f"uint4 words[{together}][{STEP_UNITS}];",
            *unrolled("k", str(together), load),
            f"wait(done + stage % {streams.slots}, stage / {streams.slots} % 2 ^ 1);  // with what was in the slot",
            *block(f"if ({first})", ask),
            *unrolled("k", str(together), stores),
        ]
        return block(f"for (int turn = 0; turn < {turns}; ++turn)", lines) if turns > 1 else lines

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

    def _place(self) -> list[str]:
        """Where position p is in the tensor, and whether it is inside."""
        streams, source, dims = self._streams, self.scene.conv.source, self.scene.dims
        rank, terms = len(streams.box), []
        staged = math.prod(streams.staged_plane)
        together, turns = self._rounds
        tests = [f"p < {staged}"] if together * turns * THREADS > staged else []
        words = decoded("p", streams.staged_plane) if rank > 1 else ["p"]
        lines = []
        for dim, (name, axis) in enumerate(zip(dims, streams.of.axes, strict=True)):
            walked, first = streams.is_walked and dim == 0, axis.shifts[0]
            if not walked:
                more = first + (streams.first_column if dim == rank - 1 else 0)
                moved = f" {'-' if more < 0 else '+'} {abs(more)}" if more else ""
                lines.append(f"const int {name} = {times(f'box_{name}', axis.in_stride)} + {words[dim - rank]}{moved};")
            planes = (streams.walk if walked else streams.box[dim]) * streams.places[dim]
            reached = (planes - 1) * axis.in_stride + axis.shifts[-1] + (streams.live - 1) * walked * axis.in_stride
            if first < 0 or reached >= axis.extent:
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


def _after(word: str, count: int) -> str:
    return f"{word} {'-' if count < 0 else '+'} {abs(count)}" if count else word
