"""How stages come into their slots: planes of input by two warpgroups, weights by a bulk copy beside them.

Where a box is as wide as the input, a channel's rows are one run: those of the next stage are asked for ahead, to the
L2 cache.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crucible.target.cuda import block, indented, unrolled
from crucible.write.convolution.halo import STEP_UNITS, decoded, times
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup.pieces import FETCH
from crucible.write.convolution.warpgroup.stream_reading import Positions, Reading, first_of
from crucible.write.convolution.warpgroup.stream_windows import WindowReading
from crucible.write.convolution.warpgroup.streams import STAGERS, Streams
from crucible.write.convolution.warpgroup.walks import WARPS
from crucible.write.program import contiguous

THREADS = STAGERS * WARPS * 32
MOST_HELD = 40
"""Registers of a thread for what is on its way."""


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
        head = f"for (int item = {self._first_item}; item < {self._streams.items}; item += {self.scene.blocks_a_part})"
        return block(head, _declared(self._item("item"), lines))

    @property
    def _first_item(self) -> str:
        return f"static_cast<int>(blockIdx.x) / {self.scene.parts}"

    @property
    def _planes(self) -> str:
        """Of outputs, of each item; empty where some have less."""
        if not self._streams.is_walked:
            return "1"
        return str(self._streams.walk) if self._streams.boxes[0] % self._streams.walk == 0 else ""

    def _item(self, item: str) -> list[str]:
        """Where an item is, and how many planes of outputs it has."""
        streams, dims = self._streams, self.scene.dims
        words = decoded(item, (streams.of.batch, *streams.places))
        lines = [f"const int n = {words[0]};"]
        sizes = [streams.walk, *streams.box[1:]] if streams.is_walked else streams.box
        for name, word, size in zip(dims, words[1:], sizes, strict=True):
            start = word if size == 1 or word == "0" else f"({word}) * {size}"
            walked = streams.is_walked and name == "d"
            lines.append(f"const int {'first_plane' if walked else f'box_{name}'} = {start};")
        count = self._planes or f"min({streams.walk}, {streams.boxes[0]} - first_plane)"
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
        packed = f"reinterpret_cast<const uint4*>({scene.packed.name})"
        if streams.channel_tiles > 1:
            packed += f" + part * {streams.packed_units}"
        return [
            f"const int thread = threadIdx.x % {THREADS};",
            f"const uint4* const packed_units = {packed};",
            *self._ahead(),
            "int stage = 0;",
            *self.each_item(self._all()),
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
        """Pieces are loaded first, then the slot is waited for, then weights are asked for and pieces stored."""
        streams, parts = self._streams, self._streams.parts
        slot = f"stage % {streams.slots}"
        ask = [
            f"const int units = {_of_part([streams.weight_units(part) for part in parts], 'm')};",
            f"const uint4* from_units = packed_units + {_of_part(streams.begins, 'm')} + s * units;",
            f"mbarrier_expect_tx(loaded + {slot}, units * 16);",
            f"bulk_copy(slot + {streams.plane_units}, from_units, units * 16, loaded + {slot});",
        ]
        return [
            f"uint4* const slot = ring + {slot} * {streams.slot_units};",
            *(["move_on();", "fetch_next();"] if self.fetches else []),
            *self._reading.begin(self._depth("t", "m")),
            *self._load(ask),
            "fence_proxy_async();",
            f"mbarrier_arrive(loaded + {slot});",
            "++stage;",
        ]

    def _depth(self, t: str, m: str) -> str:
        """Which plane of input part m of plane t is; empty where there are none."""
        streams = self._streams
        if not streams.is_walked:
            return ""
        axis = streams.of.axes[0]
        shifts = _of_part([part.shift + axis.shifts[0] for part in streams.parts], m)
        return f"{times(f'(first_plane + {t})', axis.in_stride)} + {shifts}"

    @cached_property
    def _reading(self) -> Reading:
        spread = self.scene.conv.spread
        return WindowReading(self.scene, spread) if spread else Positions(self.scene)

    @cached_property
    def _rounds(self) -> tuple[int, int]:
        """Pieces of a thread at once, and how often."""
        rounds = -(-self._reading.count // THREADS)
        turns = -(-rounds // max(1, MOST_HELD // self._reading.registers))
        return -(-rounds // turns), turns

    def _load(self, ask: list[str]) -> list[str]:
        """What is loaded is not touched before the slot is waited for: so nvcc leaves all loads in a row (36 of 40 of
        P38's input gradient). Where they were rounded at once, the 24th waited for the 16th and so on. Loads that are
        stored in a loop's next round are no way to have more of them: nvcc 13.0 waits for all of them at once."""
        reading, (together, turns) = self._reading, self._rounds
        guarded = together * turns * THREADS > reading.count
        round_ = f"(turn * {together} + k)" if turns > 1 else "k"
        number = f"const int number = thread + {round_} * {THREADS};"
        first = "thread == 0 && turn == 0" if turns > 1 else "thread == 0"
        lines = [
            *reading.held(together),
            *unrolled("k", str(together), [number, *reading.load(guarded)]),
            f"mbarrier_wait(done + stage % {self._streams.slots}, stage / {self._streams.slots} % 2 ^ 1);"
            "  // with what was in the slot",
            *block(f"if ({first})", ask),
            *unrolled("k", str(together), [number, *reading.store(guarded)]),
        ]
        return block(f"for (int turn = 0; turn < {turns}; ++turn)", lines) if turns > 1 else lines

    # what is asked for ahead

    def _ahead(self) -> list[str]:
        """Asks for the rows of the next stage while this one is loaded: a lane a channel."""
        streams, source = self._streams, self.scene.conv.source
        if not self.fetches:
            return []
        names = ["t", *(name for name, count in self._levels if count > 1)]
        whole, item, channels = streams.of.axes[-1].extent, 16 // streams.unit, streams.unit * STEP_UNITS
        each = channels // (STAGERS * WARPS)
        next_s = f"next_s * {channels} + " if streams.steps > 1 else ""
        lines = [f"const int channel = {next_s}thread / 32 * {each} + lane;"]
        tests, at = [f"lane < {each}"], [f"n * {source.strides[0]}LL", f"channel * {source.strides[1]}LL"]
        tests += [f"channel < {streams.of.in_channels}"] if streams.of.in_channels % channels else []
        if streams.is_walked:
            lines.append(f"const int d = {self._depth('next_t', 'next_m')};")
            tests.append(f"static_cast<unsigned>(d) < {streams.of.axes[0].extent}")
            at.append(times("d", source.strides[2]))
        rows = "1"
        if len(streams.box) > 1:
            axis, first = streams.of.axes[-2], first_of(streams, len(streams.box) - 2)
            begin = _after(times("box_h", axis.in_stride), first)
            lines += [
                f"const int top = {begin}, row = max(top, 0);",
                f"const int rows = min(top + {streams.staged_plane[0]}, {axis.extent}) - row;",
            ]
            tests.append("rows > 0")
            at.append(times("row", whole))
            rows = "rows"
        word = source.name
        fetched = f"fetch({word} + {' + '.join(at)}, {times(rows, whole * item)});"
        over = f"if (next_item >= {streams.items}) return;"
        fetch_next = _declared(self._item("next_item"), [*lines, f"if ({' && '.join(tests)}) {fetched}"])
        return [
            f"int {', '.join([f'next_item = {self._first_item}', *(f'next_{name} = 0' for name in names)])};",
            "const auto move_on = [&] {  // from stage to stage",
            *indented(self._moved_on()),
            "};",
            "const auto fetch_next = [&] {  // into the L2 cache",
            *indented([over, *fetch_next]),
            "};",
        ]

    @property
    def fetches(self) -> bool:
        """Whether boxes and tensors are as that needs."""
        conv, streams = self.scene.conv, self._streams
        dense = conv.source.strides == contiguous(conv.correlation.in_shape)
        return streams.fetches and streams.is_run and dense and not conv.spread

    @property
    def preamble(self) -> list[str]:
        return [FETCH] if self.fetches else []

    def _moved_on(self) -> list[str]:
        """From the last of the loops' counters on: `_all` goes the same way."""
        streams, more = self._streams, self._streams.live - 1
        planes, last = self._planes or "planes", streams.last_part + 1
        lines = [f"if (++next_t == {_after(planes, more)}) next_t = 0, next_item += {self.scene.blocks_a_part};"]
        for name, count in self._levels[::-1]:
            over = f"++next_{name} == {count}"
            if name == "m" and streams.once and last < count:
                over += f" || (next_m == {last} && next_t == {_after(planes, more - 1)})"
            lines = block(f"if ({over})", [f"next_{name} = 0;", *lines]) if count > 1 else lines
        return _declared(self._item("next_item"), lines)

    @property
    def _levels(self) -> list[tuple[str, int]]:
        """The loops inside of that over planes, the innermost first."""
        of_step, of_part = ("s", self._streams.steps), ("m", len(self._streams.parts))
        return [of_step, of_part] if self._streams.once else [of_part, of_step]


def _of_part(values: Sequence[int], m: str) -> str:
    """Of part m."""
    steps = {after - before for before, after in itertools.pairwise(values)}
    if len(steps) > 1:
        choices = "".join(f"{m} == {number} ? {value} : " for number, value in enumerate(values[:-1]))
        return f"({choices}{values[-1]})"
    step = times(m, steps.pop()) if steps else ""
    return f"({values[0]} + {step})" if step and values[0] else step or str(values[0])


def _declared(declared: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The lines, behind those of the integers `declared` that they read, or that one of those does."""
    found = list(lines)
    for line in reversed(declared):
        if line.split()[2] in re.findall(r"\w+", "\n".join(found)):
            found.insert(0, line)
    return found


def _after(word: str, count: int) -> str:
    return f"{word} {'-' if count < 0 else '+'} {abs(count)}" if count else word
