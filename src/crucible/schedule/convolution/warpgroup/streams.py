"""How a correlation is divided among warpgroups whose weights do not stay: positions are the rows of a product, output
channels its columns.

A block makes a box of positions, 8 x 8 or 1 x 64 of them a tile, for up to 256 output channels. It is multiplied stage
by stage: of one plane of input the channels of one instruction (8, or 16 of a half type), and beside it in the same
slot of shared memory the weights of all its taps, in one bulk copy. Sums stay in registers over all stages. A tile's
eights of positions are rows of the plane, so a stride between rows is a distance in the descriptor; along the last dim
every stride-th position lies in a row, and each tap is a shift of the descriptor again.

Boxes may waste half of what is multiplied: of rows of 65 outputs two of 64 and more. Then an item is so many positions
of a plane's rows one behind the other (`flat`), each row as long as the one in shared memory with what taps reach
beyond it: a tap is a shift of the descriptor there too, and what lies behind a row's outputs is made and dropped.

Of three dims the first is walked along. Either every plane of input is staged once, for all planes of outputs that it
takes part in: these are columns side by side of one product, and sums move on by so many columns from plane to plane.
Or each plane of outputs is made of its own planes of input, from the L2 cache mostly, for more positions at a time.

Of several phases those of the last dim are columns side by side of one product too, and leave together; an item makes
those of the other dims one after the other, from planes that are staged for each (where float32 is kept: else it was
not measured).

Where float32 is kept exact, planes and weights are there twice (`exact`), and each tap is two or three products. Those
of a stage and a tile come to be by themselves, and are then added to the tile's sums. So each stage can have a scale of
its own (`scaled`): words are fp16 then, in whose range a power of two brings what is staged and another one its
weights, and what is added is multiplied by the inverse of both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from crucible.algebra.convolution.correlation import Correlation, Product
from crucible.kernel.places import CORE_ROWS
from crucible.schedule import cost
from crucible.schedule.convolution.estimate import written_sectors
from crucible.schedule.convolution.exact import Pass, passes
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.walks import REGISTERS, WARPS, trimmed

TILE = 64
"""Positions of a warpgroup instruction."""
GROUPS, STAGERS = 2, 2
"""Warpgroups that multiply, and that stage: those have twice the loads on their way."""
STAGING_REGISTERS, SCALING_REGISTERS = 88, 128
"""Of a thread that stages. Where stages have scales one warpgroup does, and nvcc gives those that multiply 168
registers for 128: task 93 of level 2 takes 1.48 ms for 1.74, with 220 bytes spilled, task 1 1.83 for 1.95 (H200)."""
ROUNDS, SCALED_ROUNDS = 5, 5
"""Positions that a thread loads before it stores any; and the most of a stage that has a scale, for which all have to
be there: as 16 words each, 80 of its registers."""
SCALE_UNITS = WARPS // 4 + 1
"""Of a stage: what each warp found the largest, and what sums are multiplied by."""


def in_eights(row: int) -> int:
    """Positions from one row of a run to the next."""
    return -(-row // CORE_ROWS) * CORE_ROWS


@dataclass(frozen=True)
class Part:
    """A plane of input, and what it is multiplied by."""

    shift: int
    """From the first plane of the newest plane of outputs."""
    blocks: int
    """Planes of outputs that it takes part in, the newest first, or phases of the last dim, the last first: as many
    times the channels in one product."""
    taps: tuple[tuple[tuple[int, int], tuple[int, ...]], ...]
    """Row and column of each from the first, and of each block the offset of its weight; -1 where it has none."""
    phase: int = 0
    """Of all dims but the last, counted over them."""


@lru_cache(maxsize=256)
def _parts(of: Correlation, *, once: bool, at_once: int) -> tuple[Part, ...]:
    """All of their taps, or so many of them; the others of a plane make a part of their own."""
    whole = _whole_parts(of, once=once)
    if not at_once:
        return whole
    shares = [(part, n) for part in whole for n in range(0, len(part.taps), at_once)]
    return tuple(replace(part, taps=part.taps[n : n + at_once]) for part, n in shares)


def _whole_parts(of: Correlation, *, once: bool) -> tuple[Part, ...]:
    if math.prod(of.phases) > 1:
        return _phased(of)
    weights: dict[tuple[int, tuple[int, int]], int] = {}
    for product in of.products:
        depth, at = _place(of, product)
        weights[depth, at] = product.weight
    depths = sorted({depth for depth, _ in weights})
    if not once:
        return tuple(_part([depth], weights) for depth in depths)
    stride = of.axes[0].in_stride
    ends = [max(d for d in depths if d % stride == rest) for rest in sorted({d % stride for d in depths})]
    return tuple(_part(range(end % stride, end + 1, stride), weights) for end in ends)


def _place(of: Correlation, product: Product) -> tuple[int, tuple[int, int]]:
    """Plane, row and column that a product reads, from the first."""
    shifts = [given - axis.shifts[0] for given, axis in zip(product.shift, of.axes, strict=True)]
    depth, row, column = [0] * (3 - len(shifts)) + shifts
    return depth, (row, column)


def _phased(of: Correlation) -> tuple[Part, ...]:
    """Phase by phase of all dims but the last, and of each plane by plane; taps of all phases of the last dim first,
    as their products are those that sums begin with."""
    beside = of.phases[-1]
    found: dict[tuple[int, int], dict[tuple[int, int], list[int]]] = {}
    for product in of.products:
        depth, at = _place(of, product)
        phase, own = divmod(product.phase, beside)
        taps = found.setdefault((phase, depth), {})
        taps.setdefault(at, [-1] * beside)[beside - 1 - own] = product.weight
    parts = list[Part]()
    for (phase, depth), taps in sorted(found.items()):
        ordered = sorted(taps.items(), key=lambda tap: (tap[1][-1] < 0, tap[0]))
        parts.append(Part(depth, beside, tuple((at, tuple(offsets)) for at, offsets in ordered), phase))
    return tuple(parts)


def _part(depths: Sequence[int], weights: dict[tuple[int, tuple[int, int]], int]) -> Part:
    taps = sorted({at for depth, at in weights if depth in depths})
    of_taps = tuple((at, tuple(weights.get((depth, at), -1) for depth in depths)) for at in taps)
    return Part(depths[0], len(depths), of_taps)


@dataclass(frozen=True)
class Streams(Tiling):
    """A tiling whose box is one plane."""

    tile_rows: int = 8
    """Of 64 positions."""
    walk: int = 1
    """Planes of outputs of an item."""
    once: bool = False
    """Whether planes of input are staged once for all planes of outputs."""
    slots: int = 2
    """Stages in shared memory."""
    flat: int = 0
    """Positions of an item, where rows are taken one behind the other: then the box is what they may lie in."""
    at_once: int = 0
    """Taps of a part, where a plane's weights are more than a slot holds; 0 where all are."""
    exact: bool = False
    """Whether float32 is kept, by several products."""
    tensors: int = 1
    """Of the output's size, that the chain reads and writes."""
    sums: int = 0
    """Of each channel, over the outputs of all images or of each."""
    loads: int = 0
    """Of these tensors, those that the chain reads."""
    chain_slots: int = 0
    """Instructions of functions for an output."""
    crossings: int = 0
    """Reductions over channels, of each position."""
    fetches: bool = False
    """Whether the rows of the next stage are asked for ahead, to the L2 cache."""
    sms: int = 132

    @property
    def threads(self) -> int:
        return (GROUPS + self.staging) * WARPS * 32

    @property
    def staging(self) -> int:
        """Warpgroups that stage."""
        return 1 if self.scaled else STAGERS

    @property
    def staging_registers(self) -> int:
        """Of a thread of theirs."""
        return SCALING_REGISTERS if self.scaled else STAGING_REGISTERS

    @property
    def registers(self) -> int:
        """Of a thread that multiplies: its share, and what those leave that stage."""
        share = REGISTERS // self.threads // 8 * 8
        return share + (share - self.staging_registers) * self.staging // GROUPS // 8 * 8

    # tiles

    @property
    def rows_and_columns(self) -> tuple[int, int]:
        """Of the box's plane, or of a run."""
        if self.flat:
            return 1, self.flat
        return (self.box[-2] if len(self.box) > 1 else 1), self.box[-1]

    @property
    def tile_columns(self) -> int:
        return TILE // self.tile_rows

    @property
    def tiles_in_row(self) -> int:
        return self.rows_and_columns[1] // self.tile_columns

    @property
    def tiles(self) -> int:
        """Of each warpgroup."""
        return math.prod(self.rows_and_columns) // TILE // GROUPS

    @property
    def live(self) -> int:
        """Planes of outputs that have sums at once."""
        return (len(self.of.axes[0].shifts) - 1) // self.of.axes[0].in_stride + 1 if self.once else 1

    @property
    def beside(self) -> int:
        """Outputs of a position side by side, the phases of the last dim."""
        return self.of.phases[-1]

    @property
    def held(self) -> int:
        """Registers of a thread for sums of a tile."""
        return self.live * self.beside * self.channels // 2

    @property
    def fresh(self) -> int:
        """And for those of a stage, where they are made apart."""
        return self.held if self.exact else 0

    @property
    def words(self) -> int:
        """For each number in shared memory."""
        return 2 if self.exact else 1

    @property
    def scaled(self) -> bool:
        """Whether words of float32 are fp16, of numbers times a scale of their stage."""
        return self.exact and self.unit == 8

    @property
    def item_bytes(self) -> int:
        """Of a number in memory."""
        return 4 if self.exact else 16 // self.unit

    @property
    def word_passes(self) -> tuple[Pass, ...]:
        """Products of each tap."""
        return passes(exact=self.exact)

    # planes of input

    @property
    def is_walked(self) -> bool:
        return len(self.box) == 3

    @cached_property
    def plane(self) -> tuple[int, int]:
        """Rows and columns of input."""
        return (self.halo[-2] if len(self.box) > 1 else 1), self.halo[-1]

    @property
    def first_column(self) -> int:
        """Of what is loaded."""
        return trimmed(self, self.plane)[0]

    @cached_property
    def staged_plane(self) -> tuple[int, int]:
        """What is loaded."""
        return trimmed(self, self.plane)[1]

    @property
    def row_pitch(self) -> int:
        """Positions from one row of input to the next; rows of a run begin at whole eights."""
        row = self.lane_stride * self.lane_row
        return in_eights(row) if self.flat else row

    @property
    def step_of_rows(self) -> int:
        """Positions from what one row of outputs reads to the next."""
        return self.row_pitch * (self.of.axes[-2].in_stride if len(self.box) > 1 else 1)

    @property
    def eight(self) -> int:
        """Positions from one eight of a tile to the next."""
        return self.step_of_rows if self.tile_rows > 1 else 8

    @property
    def points(self) -> int:
        """Positions of a unit of channels; behind those of a run what taps of the last row reach."""
        reached = len(self.of.axes[-1].shifts) - 1 if self.flat else 0
        return self.plane[0] * self.row_pitch + reached

    @property
    def boxes(self) -> tuple[int, ...]:
        """Along each dim; runs along the last but one."""
        if not self.flat:
            return super().boxes
        *outer, rows, _ = (axis.steps for axis in self.of.axes)
        each = zip(outer, self.box[:-2], strict=True)
        return (*(-(-steps // n) for steps, n in each), -(-rows * self.row_pitch // self.flat), 1)

    def place(self, row: int, column: int) -> int:
        """The position of what a tap reads, from the first."""
        return row * self.row_pitch + column % self.lane_stride * self.lane_row + column // self.lane_stride

    @property
    def is_run(self) -> bool:
        """Whether the rows of a plane that are loaded are one run of whole 16 bytes in a dense tensor."""
        last, item = self.of.axes[-1], self.item_bytes
        columns = (last.shifts[0] + self.first_column, self.staged_plane[1])
        return self.boxes[-1] == 1 and columns == (0, last.extent) and last.extent * item % 16 == 0

    # windows that inputs are spread over

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of one."""
        return (self.spread[-2] if len(self.box) > 1 else 1), self.spread[-1]

    @property
    def before_window(self) -> tuple[int, int]:
        """Rows and columns of the first window of a plane that lie before what is loaded."""
        firsts = [axis.shifts[0] for axis in self.of.axes[-2:]]
        row = firsts[-2] % self.window[0] if len(self.box) > 1 else 0
        return row, (firsts[-1] + self.first_column) % self.window[1]

    @property
    def windows_of_plane(self) -> tuple[int, int]:
        """Rows and columns of windows that are loaded, or partly."""
        each = zip(self.before_window, self.staged_plane, self.window, strict=True)
        rows, columns = ((before + staged - 1) // size + 1 for before, staged, size in each)
        return rows, columns

    @property
    def begins_at_windows(self) -> bool:
        """Whether all boxes' planes begin at the same place of a window."""
        dims = range(int(self.is_walked), len(self.box))
        return all(
            self.boxes[dim] == 1 or self.box[dim] * self.of.axes[dim].in_stride % self.spread[dim] == 0 for dim in dims
        )

    # the walk

    @property
    def parts(self) -> tuple[Part, ...]:
        """Of one plane of outputs, in order: all its planes of input, or those that are new with it."""
        return _parts(self.of, once=self.once, at_once=self.at_once)

    @property
    def by_part(self) -> bool:
        """Whether all steps of a part come before the next part: where those are not of the same taps."""
        return self.once or self.in_turn

    @property
    def in_turn(self) -> bool:
        """Whether a plane of outputs is made of parts that differ, one after the other."""
        return self.at_once > 0 or math.prod(self.of.phases) > 1

    @property
    def last_part(self) -> int:
        """That with which a plane of outputs is complete."""
        if not self.once:
            return len(self.parts) - 1
        end = len(self.of.axes[0].shifts) - 1
        return [part.shift for part in self.parts].index(end % self.of.axes[0].in_stride)

    @property
    def places(self) -> tuple[int, ...]:
        """Items of one sample along each dim."""
        first, *rest = self.boxes
        return (-(-first // self.walk), *rest) if self.is_walked else self.boxes

    @property
    def items(self) -> int:
        return self.of.batch * math.prod(self.places)

    @property
    def parts_of_image(self) -> int:
        """Of a sum over space: what each warpgroup that multiplies has of each item."""
        return math.prod(self.places) * GROUPS

    # shared memory, in units of 16 bytes

    def weight_units(self, part: Part) -> int:
        """Of a stage."""
        return self.words * self.word_units(part)

    def word_units(self, part: Part) -> int:
        """Of them, of the higher words or the lower ones."""
        return len(part.taps) * STEP_UNITS * part.blocks * self.channels

    def columns_of(self, tap: tuple[tuple[int, int], tuple[int, ...]]) -> int:
        """Columns of a tap's product: of phases those up to the last that has a weight."""
        _, offsets = tap
        blocks = max(n for n, offset in enumerate(offsets, 1) if offset >= 0) if self.beside > 1 else len(offsets)
        return blocks * self.channels

    @property
    def packed_units(self) -> int:
        """Of a tile of channels: [part][step][word][tap][unit of input channels][block][channels]."""
        return self.steps * sum(map(self.weight_units, self.parts))

    @property
    def begins(self) -> tuple[int, ...]:
        """Of each part's weights."""
        sizes = [self.steps * self.weight_units(part) for part in self.parts]
        return tuple(itertools.accumulate([0, *sizes[:-1]]))

    @property
    def plane_units(self) -> int:
        """Of a slot, higher words and behind them the lower ones; its weights follow."""
        return self.words * self.plane_word_units

    @property
    def plane_word_units(self) -> int:
        return STEP_UNITS * self.points

    @property
    def slot_units(self) -> int:
        return self.plane_units + self.slot_weight_units + SCALE_UNITS * self.scaled

    @property
    def slot_weight_units(self) -> int:
        return max(map(self.weight_units, self.parts))

    @property
    def stages(self) -> int:
        """Of a tile of channels, that have weights of their own."""
        return self.steps * len(self.parts)

    @property
    def shared_bytes(self) -> int:
        return self.slots * (16 * self.slot_units + 16) + 4 * GROUPS * WARPS * self.total_words

    @property
    def total_words(self) -> int:
        """Of a warp, for its own part of each sum."""
        return self.sums * self.channels

    # time

    @property
    def staged_bytes(self) -> float:
        """Of memory, for a stage: what is not one run comes in pieces, beginning anywhere."""
        item, (rows, columns) = self.item_bytes, self.windows_of_plane if self.spread else self.staged_plane
        row = float(columns * item + (self.machine.sm.piece_bytes - item if self.boxes[-1] > 1 else 0))
        if self.spread:  # and choices; of several planes of the same windows all but the first come from the L2 cache
            row = (row + row / item) / (self.spread[0] if self.is_walked else 1)
        return self.unit * STEP_UNITS * rows * row

    @property
    def stage_clocks(self) -> float:
        """In which those that stage load and store a plane: a thread takes so many positions, and waits for them."""
        if self.spread:
            rounds = -(-math.prod(self.windows_of_plane) * STEP_UNITS // (self.staging * WARPS * 32))
            return cost.streamed_windows(self.machine, rounds, -(-rounds // ROUNDS), math.prod(self.window))
        waits = -(-self.rounds // ROUNDS)
        return cost.streamed_rounds(
            self.machine, self.rounds * self.item_bytes * self.unit // 16, waits, cached=self.fetches
        )

    @property
    def dealt(self) -> int:
        """Positions that are staged, with those that dealing adds at the end where rows are dealt."""
        staged, eights = math.prod(self.staged_plane), CORE_ROWS * self.lane_stride
        return staged if self.lane_stride == 1 else -(-staged // eights) * eights

    @property
    def holds_stages(self) -> bool:
        """Whether threads hold all of a stage at once, where it has a scale."""
        return not self.scaled or self.dealt <= SCALED_ROUNDS * self.staging * WARPS * 32

    @property
    def rounds(self) -> int:
        """Positions that a thread stages."""
        return -(-math.prod(self.staged_plane) // (self.staging * WARPS * 32))

    @cached_property
    def clocks(self) -> float:
        """Estimate for a plane of outputs."""
        item, outer = self.item_bytes, [axis.outputs for axis in self.of.axes]
        box = [min(n, whole) for n, whole in zip(self.output_box, outer, strict=True)]
        channels, partly = float(min(self.channels, self.of.out_channels)), self.machine.sm.partly
        if self.flat:  # of the rows that it lies in, or partly
            channels *= self.flat / (self.box[-2] * self.row_pitch)
        positions = self.tiles * GROUPS * TILE * math.prod(self.of.phases)
        return cost.streamed_plane(
            self.machine, map(self._stage, self.parts), rows=TILE, made=positions * self.channels,
            kept=math.prod(box) * channels, tensors=self.tensors, loads=self.loads, slots=self.chain_slots,
            sums=self.sums, crossings=self.crossings, apart=self.of.axes[-1].outputs * item % 32 > 0,
            written=written_sectors(box, outer, item, partly) * channels, exact=self.exact,
        )  # fmt: skip

    def _stage(self, part: Part) -> cost.Stage:
        """All stages of a plane of input; what is staged comes from L1, 32 bytes a position or 64, and 32 of each word
        go to shared memory."""
        staged, products = self.steps * math.prod(self.staged_plane), len(self.word_passes)
        return cost.Stage(
            self.steps, self.steps * self.tiles * GROUPS * len(part.taps) * products,
            sum(map(self.columns_of, part.taps)) / len(part.taps),
            staged * STEP_UNITS * self.unit * self.words,
            staged * (self.item_bytes * self.unit / 16 + self.words) / 4,
            self.steps * 16 * self.weight_units(part), self.steps * self.staged_bytes, self.stage_clocks,
        )  # fmt: skip

    @property
    def total_clocks(self) -> float:
        """Of all multiprocessors, by the one with most items. Where planes are staged once, the first ones of an item
        are of outputs before it too. Beside tensors that the chain loads rows asked for ahead cost nothing: two modules
        took 0.93 and 1.00 times as long forward (H100)."""
        rounds = -(-self.items // max(1, self.sms // self.channel_tiles))
        planes = self.walk + (self.live - 1) / len(self.parts)
        fetches = self.fetches and not self.once and not self.loads
        return cost.streamed_items(self.machine, rounds, planes * self.clocks, fetches=fetches) * self.sms
