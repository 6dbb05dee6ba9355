"""How a correlation is divided among warpgroups.

A block walks along the first of three dims: each plane of its input is staged once, in a ring of slots, and read by the
products of all output planes near it. One warpgroup stages, or two in turn, the others multiply: a plane of outputs is
one `wgmma.m64nNk8` a tap (K is 16 for half types), whose positions lie in a row over the plane, those between two rows
of outputs among them. While one warpgroup multiplies, another runs its chain.

Where float32 is kept exact, weights and planes are there twice (`exact`), and each tap is two or three products. What
that takes of shared memory is less where warps hold the lower words of some taps in registers from first to last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

from crucible.algebra.convolution.correlation import Correlation, Product
from crucible.gpus import Gpu
from crucible.schedule import cost
from crucible.schedule.convolution.estimate import least, sectors
from crucible.schedule.convolution.exact import Pass, passes
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.tiling import MOST_PRODUCTS, Tiling
from crucible.schedule.machine import machine_of

ROWS = 64
"""Output channels of a warpgroup instruction."""
WARPS, THREADS = 4, 128
"""Of a warpgroup."""
TEAMS = ((2, 256, 16), (3, 144, 8))
"""Warpgroups that multiply beside one that stages; what registers then have room for: positions of the ones, units of
channels on their way of the other (with twice as many it spilled)."""
TWO_STAGE = 112
"""Positions for which two warpgroups that multiply leave registers to a second one that stages: none of 152 kernels
(nine convolutions, four chains, two dtypes, nvcc 13.0) spills."""
CHANNELS = 16
"""Of a warp that multiplies: rows of an instruction, of which a lane has two, eight apart."""
SLAB = 8
"""The rows that lanes have first."""
MOST_INSTRUCTIONS = 256
MOST_UNITS = 16
"""Of 16 bytes that a thread which stages has on their way at once."""
REGISTERS, STAGING_REGISTERS = 65536, 88
"""Of a multiprocessor; those of a thread that stages."""
PACK = 8
"""Registers of what is on its way to memory or from there."""

AnyWalks = TypeVar("AnyWalks", bound="Walks")


@dataclass(frozen=True)
class Chain:
    """What of a chain the division asks for."""

    sums: int = 0
    """Of each channel, over the outputs of all images or of each."""
    loads: int = 0
    """Other tensors of the output's size that it reads."""
    by_rows: bool = False
    """Whether it runs over rows of the tile, however they lie."""
    slots: int = 0
    """Instructions of an element's functions that branch."""
    functions: int = 0
    """Of those that do not."""
    numbers: int = 0
    """Registers that its numbers of a channel take: what it reads of two rows, and of these and of the thread what it
    adds up."""


@dataclass(frozen=True)
class Walks(Tiling):
    """A tiling whose box is one plane: of three dims, the first is walked along."""

    walk: int = 1
    """Planes of an item."""
    groups: int = 2
    """Warpgroups that multiply."""
    stagers: int = 1
    """Those that stage, in turn."""
    slots: int = 4
    """Planes of input in shared memory."""
    exact: bool = False
    """Whether float32 is kept, by several products."""
    lower_held: int = 0
    """Taps, the last ones, whose weights' lower words stay in registers: of a single step of channels."""
    chain: Chain = Chain()
    sms: int = 132
    """Multiprocessors among which items are dealt."""

    @property
    def threads(self) -> int:
        return (self.groups + self.stagers) * WARPS * 32

    @property
    def registers(self) -> int:
        """Of a thread that multiplies: its share, and that of what the threads leave that stage."""
        share = REGISTERS // self.threads // 8 * 8
        return share + (share - STAGING_REGISTERS) * self.stagers // self.groups // 8 * 8

    @property
    def words(self) -> int:
        """For each number in shared memory."""
        return 2 if self.exact else 1

    @property
    def word_passes(self) -> tuple[Pass, ...]:
        """Products of each tap."""
        return passes(exact=self.exact)

    @property
    def instructions(self) -> int:
        """Of a plane."""
        return self.steps * len(self.of.products) * len(self.word_passes)

    # channels

    @property
    def warp_channels(self) -> int:
        """Of a warp. Few channels are dealt to all four of a warpgroup, eight a warp or four: in the first rows that an
        instruction has of one, so that none is without a chain (with 16 channels three of four were: task 48 took 2.6
        times its estimate, H200)."""
        few = -(-self.of.out_channels // WARPS)
        return next((channels for channels in (SLAB // 2, SLAB) if few <= channels), CHANNELS)

    @property
    def row_slabs(self) -> int:
        """Of a warp's channels: those of its lanes' first rows, or their second ones too."""
        return max(1, self.warp_channels // SLAB)

    @property
    def lies_in_two_rows(self) -> bool:
        """Whether each of its eights of positions, or sixteens, does, as kernels take them to."""
        width, together = self.plane[1], 8 * self.copies
        begins = (first % width for first in range(0, self.columns_of_b, together))
        return self.outputs_a_plane <= self.box[-1] or all(begin + together <= 2 * width for begin in begins)

    @property
    def copies(self) -> int:
        """Rows of the same channel, side by side: lanes of one have every other eight positions of it."""
        return max(1, SLAB // self.warp_channels)

    @property
    def part_channels(self) -> int:
        """Of a warpgroup."""
        return WARPS * self.warp_channels

    @property
    def padded_channels(self) -> int:
        return super().padded_channels if self.warp_channels == CHANNELS else self.part_channels

    # the plane

    @cached_property
    def plane(self) -> tuple[int, int]:
        """Rows and columns of its input; 1 row of one dim."""
        rows = self.halo[-2] if len(self.box) > 1 else 1
        return rows, self.halo[-1]

    @property
    def staged_plane(self) -> tuple[int, int]:
        """Of it what is loaded."""
        return self.plane

    @property
    def first_column(self) -> int:
        """Of what is loaded."""
        return 0

    @property
    def row_pitch(self) -> int:
        """Positions from one row to the next in shared memory."""
        return self.plane[1]

    @property
    def outputs_a_plane(self) -> int:
        return math.prod(self.box[-2:])

    @cached_property
    def columns_of_b(self) -> int:
        """Positions that are multiplied: N of the instruction."""
        rows, eights = (self.box[-2] if len(self.box) > 1 else 1), 8 * self.copies
        return -(-((rows - 1) * self.row_pitch + self.box[-1]) // eights) * eights

    @property
    def points(self) -> int:
        """Of a unit of channels: all that the last tap reads."""
        return self.columns_of_b + max(at for _, at in map(self.place, self.of.products))

    def place(self, product: Product) -> tuple[int, int]:
        """The plane that a tap reads, from the first, and the position within it."""
        *outer, last = (given - axis.shifts[0] for given, axis in zip(product.shift, self.of.axes, strict=True))
        row = outer[-1] if outer else 0
        return (outer[0] if len(outer) > 1 else 0), row * self.row_pitch + last

    # the walk

    @property
    def span(self) -> int:
        """Planes of input that a plane of outputs reads."""
        return len(self.of.axes[0].shifts) if len(self.box) == 3 else 1

    @property
    def places(self) -> tuple[int, ...]:
        """Items of one sample along each dim."""
        first, *rest = self.boxes
        return (-(-first // self.walk), *rest) if len(self.box) == 3 else self.boxes

    @property
    def items(self) -> int:
        return self.of.batch * math.prod(self.places)

    @property
    def parts_of_image(self) -> int:
        """Of a sum over space: what warpgroups have of each item."""
        return math.prod(self.places) * self.parts_of_item

    @property
    def parts_of_item(self) -> int:
        """Of one plane the part is that of the warpgroup whose turn it is; of several each has one, be it of none."""
        return self.groups if len(self.box) == 3 and self.walk > 1 else 1

    # shared memory, in units of 16 bytes

    @property
    def packed_units(self) -> int:
        """Of the weight of a tile of channels."""
        return self.words * self.word_units

    @property
    def word_units(self) -> int:
        """Of them, of the higher words or the lower ones."""
        return self.steps * len(self.of.products) * STEP_UNITS * ROWS

    @property
    def weight_units(self) -> int:
        """Of it, what a block has."""
        return self.packed_units - self.lower_held * STEP_UNITS * ROWS

    @property
    def plane_units(self) -> int:
        """Of a plane's higher words; behind them are the lower ones."""
        return self.steps * STEP_UNITS * self.points

    @property
    def slot_units(self) -> int:
        return self.words * self.plane_units

    @property
    def pitch(self) -> int:
        """Words of a channel in the tile: 8 or 24 beyond a multiple of 32, so that four channels of a fragment are
        written without bank conflicts; 16 beyond it where a fragment has two."""
        eights = 8 * self.copies
        return self.outputs_a_plane + (eights - self.outputs_a_plane) % (2 * eights)

    @property
    def loads(self) -> int:
        """Tensors that bulk copies bring."""
        return self.chain.loads if self.in_bulk else 0

    @property
    def tiles(self) -> int:
        """Of a warp: one for each tensor that comes, the result's among them."""
        return max(1, self.loads)

    @property
    def tile_words(self) -> int:
        """Of a warp, all its tiles."""
        return self.tiles * self.warp_channels * self.pitch

    @property
    def turns(self) -> int:
        """Warpgroups whose products wait until those of another are on their way."""
        return self.groups

    @property
    def barriers(self) -> int:
        """Each slot is loaded and done with; each warpgroup has its turn; each warp's tensors have come."""
        return 2 * self.slots + self.turns + (self.groups * WARPS if self.loads else 0)

    @property
    def shared_bytes(self) -> int:
        tiles = 4 * self.groups * WARPS * self.tile_words
        words = self.weight_units + self.slots * self.slot_units
        return 16 * words + tiles + 8 * self.barriers + 4 * self.groups * self.total_words

    @property
    def total_words(self) -> int:
        """Of a warpgroup, for its own part of each sum where that is not in registers."""
        return 0 if self.in_bulk else self.chain.sums * ROWS

    # time

    @cached_property
    def clocks(self) -> float:
        """Estimate for a plane of one item."""
        return cost.walked_plane(
            self.machine, instructions=self.instructions, columns=self.columns_of_b, rows=ROWS,
            finished=self.part_channels, groups=self.groups, in_bulk=self.in_bulk, sums=self.chain.sums,
            loads=self.chain.loads, slots=self.chain.slots, functions=self.chain.functions,
            staged=self._stage_clocks / self.stagers, moved=self._moved,
        )  # fmt: skip

    @property
    def _stage_clocks(self) -> float:
        """Of a plane of input, for each of outputs."""
        units = self.steps * STEP_UNITS
        pieces = -(-math.prod(self.staged_plane) // THREADS) * units
        rounds = -(-pieces // max(units, MOST_UNITS // units * units))
        return cost.walked_rounds(self.machine, rounds, pieces) * (self.walk + self.span - 1) / self.walk

    @property
    def in_bulk(self) -> bool:
        """Whether a channel's outputs of a plane are one run of whole 16 bytes, and the chain stays in registers."""
        if self.chain.by_rows:
            return False
        *outer, last = [axis.outputs for axis in self.of.axes]
        width, is_one = self.box[-1], self.outputs_a_plane == self.box[-1]
        sizes = (width, last) if is_one else (self.outputs_a_plane, math.prod([last, *outer[-1:]]))
        return (is_one or width == last) and all(n * 16 // self.unit % 16 == 0 for n in sizes)

    @property
    def _moved(self) -> float:
        """To and from memory, planes once an item; each run is a copy of its own."""
        item = 16 // self.unit
        written = sectors(self.box, [axis.outputs for axis in self.of.axes], item) * min(ROWS, self.of.out_channels)
        plane = sectors(self.plane, [1, *(axis.extent for axis in self.of.axes)][-2:], item) * self.of.in_channels
        read = plane * (self.walk + self.span - 1) / self.walk
        tensors = 1 + self.chain.loads
        return cost.walked_sectors(self.machine, written * tensors + read, ROWS * tensors)

    @property
    def total_clocks(self) -> float:
        """Of all multiprocessors, by the one with most items."""
        rounds = -(-self.items // max(1, self.sms // self.channel_tiles))
        waits = self.slots <= self.span + self.groups
        clocks = cost.walked_items(self.machine, rounds, self.walk * self.clocks, waits=waits) * self.sms
        return cost.stepped(self.machine, clocks, is_stepped=self.steps > 1 and len(self.box) == 2 and not self.exact)


def trimmed(tiling: Tiling, plane: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """Of a plane of input, without columns that lie outside of the tensor in every item: those are 0 once and for all.
    The first column that is loaded; rows and columns that are."""
    rows, columns = plane
    if tiling.boxes[-1] > 1:
        return 0, plane
    last = tiling.of.axes[-1]
    first = max(0, -last.shifts[0])
    return first, (rows, max(1, min(columns, last.extent - last.shifts[0]) - first))


def serves(of: Correlation, gpu: Gpu) -> bool:
    """Whether a GPU has the instructions, and the correlation positions that lie in a row for every tap."""
    return (
        gpu.compute_capability == (9, 0)
        and of.is_dense
        and math.prod(of.phases) == 1
        and not of.folds
        and all(axis.in_stride == 1 for axis in of.axes)
        and 0 < len(of.products) <= MOST_PRODUCTS
    )


@lru_cache(maxsize=256)
def walk(of: Correlation, unit: int, gpu: Gpu, chain: Chain = Chain(), *, exact: bool = False) -> Walks | None:
    """The division of least estimated time; None where there is none."""
    return min(_walks(of, unit, gpu, chain, exact), key=lambda each: each.total_clocks, default=None)


def best_walks(
    of: Correlation, unit: int, count: int, gpu: Gpu, chain: Chain = Chain(), *, exact: bool = False
) -> list[Walks]:
    """So many of least estimated time, each with other planes or warpgroups."""
    return least(_walks(of, unit, gpu, chain, exact), count, lambda each: (each.box, each.groups, each.stagers))


def _walks(of: Correlation, unit: int, gpu: Gpu, chain: Chain, exact: bool) -> Iterator[Walks]:
    if not serves(of, gpu):
        return
    steps = -(-of.in_channels // (unit * STEP_UNITS))
    if steps * len(of.products) > MOST_INSTRUCTIONS:
        return
    # of equal estimate three that multiply are faster, and then two that stage
    teams = [(groups, 1, most, units) for groups, most, units in reversed(TEAMS)]
    teams.insert(1, (TEAMS[0][0], 2, TWO_STAGE, TEAMS[0][2]))
    for box, (groups, stagers, most, most_units), length in itertools.product(planes(of), teams, lengths(of)):
        wanted = Walks(of, unit, steps, box, ROWS, ((0,),), 1, walk=length, groups=groups, stagers=stagers, exact=exact,
                       chain=chain, sms=gpu.sms, machine=machine_of(gpu))  # fmt: skip
        # eight positions, or sixteen, lie in two rows at most
        narrow = wanted.plane[1] < 8 * wanted.copies and wanted.outputs_a_plane > box[-1]
        if not narrow and wanted.columns_of_b <= most and steps * STEP_UNITS <= most_units:
            room = (most - wanted.columns_of_b) // 2  # registers that sums leave; P90 spilled with 8 more
            held = room // 4 if exact and steps == 1 else 0
            if wanted.columns_of_b // 2 + 4 * held + chain.numbers + PACK <= wanted.registers:
                yield from with_slots(wanted, gpu, held)


def with_slots(wanted: AnyWalks, gpu: Gpu, most_held: int = 0) -> Iterator[AnyWalks]:
    """With as many planes in shared memory as fit, where lower words of so many taps at most are in registers: those in
    use, and one or two to come."""
    for slots in range(wanted.span + wanted.groups + 1, wanted.span + wanted.groups - 2, -1):
        found = replace(wanted, slots=slots)
        beyond = found.shared_bytes - gpu.shared_memory_per_block_bytes
        held = max(0, -(-beyond // (16 * STEP_UNITS * ROWS)))
        if slots > 1 and held <= min(most_held, len(wanted.of.products)):
            yield replace(found, lower_held=held)
            return


def lengths(of: Correlation) -> list[int]:
    if len(of.axes) < 3:
        return [1]
    planes = of.axes[0].steps
    return sorted({-(-planes // parts) for parts in (1, 2, 4, 8)})


def planes(of: Correlation) -> Iterator[tuple[int, ...]]:
    """Boxes of one plane: as wide as it is, or in pieces."""
    steps = [axis.steps for axis in of.axes]
    for width in sorted({steps[-1], *(w for w in (32, 64, 128, 256) if w < steps[-1])}):
        if len(steps) == 1:
            yield (width,)
            continue
        for rows in range(1, min(steps[-2], 64) + 1):
            yield (*([1] if len(steps) == 3 else []), rows, width)
