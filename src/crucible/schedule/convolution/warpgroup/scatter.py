"""How a correlation of few output channels is divided among warpgroups: every input by all taps at once, added up where
they belong.

Roles are turned round against `walks`: 64 neighbouring inputs of a row are the rows of an instruction, in registers,
and its columns are taps times eight output channels. Along one dim (the inner one: depth, of three) a warpgroup walks
on, and sums of taps that meet there stay in its registers; those of the other dims are added up in shared memory, a
row of outputs for each tap of the outer dim that is yet to come. Two warpgroups take every other row of the outer dim,
while a third one copies inputs in bulk. A box is of outputs; it reads what its outputs need, so boxes share inputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from crucible.algebra.convolution.correlation import Axis, Correlation, Tap
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.program import contiguous
from crucible.gpus import Gpu
from crucible.schedule import cost
from crucible.schedule.convolution.estimate import least, sectors
from crucible.schedule.convolution.exact import Pass, passes
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.rows import plain
from crucible.schedule.convolution.tiling import MOST_PRODUCTS, Tiling
from crucible.schedule.convolution.warpgroup.walks import WARPS
from crucible.schedule.machine import machine_of

POSITIONS = 64
"""Inputs of a warpgroup instruction: its rows."""
TEAMS = 2
"""Warpgroups that multiply."""
CHANNELS = 8
"""Output channels of a block."""
UNIT = 4
"""Words of sixteen bytes, and input channels of a unit."""
MOST_STEPS = 8
"""Steps of eight channels that a warpgroup holds in registers at once; half as many of two words each."""
MOST_SUMS = 112
"""Registers for sums beside those."""
MULTIPLYING, COPYING = 224, 56
"""Registers of a thread."""
KEPT_REGISTERS = 232, 40
"""The same where float32 is kept, as products are added up apart from what they are added to."""
BESIDE = 16
"""Registers for what a thread has beside sums and inputs, at least."""
MOST_SLOTS = 4
PARTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)


@dataclass(frozen=True)
class Scatter(Tiling):
    """A tiling whose box is of outputs."""

    inner: int | None = None
    """The dim whose taps meet in registers; there is none of two."""
    outer: int = 0
    """That whose taps meet in rows of shared memory."""
    slots: int = 2
    """Places for inputs: of two rows, so many channels as are multiplied at once."""
    exact: bool = False
    """Whether float32 is kept, by several products: of both words of weights, and of both of inputs."""
    sms: int = 132
    """Multiprocessors among which items are dealt."""

    @property
    def threads(self) -> int:
        """With a warpgroup that copies."""
        return (TEAMS + 1) * WARPS * 32

    # dims

    def axis(self, dim: int | None) -> Axis:
        """One element and one tap where there is no such dim."""
        return self.of.axes[dim] if dim is not None else NONE

    def size(self, dim: int | None) -> int:
        """Outputs of a box."""
        return self.box[dim] if dim is not None else 1

    def span(self, dim: int | None) -> int:
        """Outputs from the first to the last that an input is multiplied for."""
        return len(self.axis(dim).shifts)

    def read(self, dim: int | None) -> int:
        """Inputs of a box at most."""
        return min(self.axis(dim).extent, self.size(dim) + self.span(dim) - 1)

    @property
    def last(self) -> int:
        return len(self.of.axes) - 1

    @property
    def is_whole(self) -> bool:
        """Whether a box has all inputs of its rows."""
        return self.size(self.last) >= self.axis(self.last).outputs

    @property
    def is_joined(self) -> bool:
        """Whether two rows of the outer dim are neighbours in memory."""
        return self.is_whole and self.outer == self.last - 1

    # products

    @cached_property
    def taps(self) -> tuple[tuple[int, int, int, int], ...]:
        """How far the output of each is behind the first that an input is multiplied for, along inner, outer and last
        dim, and the place of its weight."""
        inner, outer = self.inner, self.outer
        found = ((of[inner] if inner is not None else 0, of[outer], of[-1], weight) for of, weight in self.of.behind)
        return tuple(sorted(found))

    @cached_property
    def across(self) -> tuple[tuple[int, int], ...]:
        """Of them along the outer and the last dim, the same for each of the inner one."""
        return tuple(dict.fromkeys((outer, last) for _, outer, last, _ in self.taps))

    @property
    def groups(self) -> int:
        """Sums of one input that belong to different places of the inner dim."""
        return self.span(self.inner)

    @property
    def words(self) -> int:
        """For each weight and input."""
        return 2 if self.exact else 1

    @property
    def word_passes(self) -> tuple[Pass, ...]:
        """Products of each tap."""
        return passes(exact=self.exact)

    @property
    def columns(self) -> int:
        """Of an instruction."""
        return len(self.across) * CHANNELS

    @property
    def every_column(self) -> int:
        """Of all weights."""
        return len(self.taps) * CHANNELS

    @property
    def most_steps(self) -> int:
        """Steps of eight channels that registers have room for at once. Where float32 is kept, products are held apart
        from sums: with four steps beside 5 x 5 taps nvcc 13.0 spilled 208 bytes."""
        if not self.exact:
            return MOST_STEPS
        sums = (self.groups + 1) * self.columns // 2
        return min(MOST_STEPS, (KEPT_REGISTERS[0] - BESIDE - sums) // 4) // self.words

    @property
    def chunk(self) -> int:
        """Of them so many: a divisor, so that no place holds channels of another chunk."""
        return max(n for n in range(1, self.most_steps + 1) if self.steps % n == 0)

    @property
    def chunks(self) -> int:
        return self.steps // self.chunk

    # shared memory, in words

    @property
    def weight_words(self) -> int:
        return self.words * self.weight_units * UNIT

    @property
    def weight_units(self) -> int:
        """Of the higher words; behind them are the lower ones."""
        return self.steps * STEP_UNITS * self.every_column

    @property
    def team_words(self) -> int:
        """From one warpgroup's inputs of a channel to the other's."""
        return self.axis(self.last).extent if self.is_joined else 72

    @property
    def pitch(self) -> int:
        """Of a channel's inputs: 8 beyond a multiple of 32, so that four channels of a fragment are read without bank
        conflicts where channels begin alike; with up to three words before the first."""
        needed = self.team_words + POSITIONS + 3
        return needed + (8 - needed) % 32

    @property
    def slot_words(self) -> int:
        return self.chunk * CHANNELS * self.pitch

    @property
    def made(self) -> Correlation:
        return self.of

    @property
    def reached(self) -> int:
        """Outputs that the inputs of an instruction are multiplied for."""
        return POSITIONS + self.span(self.last) - 1

    @property
    def half_words(self) -> int:
        """Of every second output of a row, eight channels each; four beyond a multiple of eight, so that neighbours
        lie in different banks."""
        return -(-self.reached // 2) * CHANNELS + 4

    @property
    def row_words(self) -> int:
        return 2 * self.half_words

    @property
    def pending(self) -> int:
        """Rows of the outer dim that more is added to."""
        return self.span(self.outer) - 1

    @property
    def rows_words(self) -> int:
        return self.pending * self.size(self.inner) * self.row_words

    @property
    def finished_words(self) -> int:
        """Two rows of each warpgroup: one is written while sums are added to the other."""
        return TEAMS * 2 * self.row_words

    @property
    def barriers(self) -> int:
        return 2 * self.slots + TEAMS

    @property
    def shared_bytes(self) -> int:
        words = self.weight_words + self.slots * self.slot_words + self.rows_words + self.finished_words
        return 4 * words + 8 * self.barriers

    # time

    @property
    def rounds(self) -> int:
        """In which a warpgroup adds up: two neighbouring outputs of each lane in each."""
        return self.span(self.last) // 2 + 1

    @property
    def accesses(self) -> int:
        """Of a lane to rows in shared memory, eight bytes each, for a tile: one to read and one to write a place."""
        places = {(outer, last + e) for outer, last in self.across for e in (0, 1)}
        return 2 * len(places) + 2

    @property
    def clocks(self) -> float:
        """Estimate for a tile: 64 inputs of a row."""
        rows = self.steps * CHANNELS
        return cost.scattered_tile(
            self.machine, products=len(self.word_passes) * self.steps, columns=self.every_column,
            inputs=rows * (POSITIONS * 4 / 128 + POSITIONS * 5 / 128), accesses=self.accesses * 2 * WARPS,
            copies=rows / (TEAMS if self.is_joined else 1), chunks=self.chunks, rounds=self.rounds, teams=TEAMS,
            moved=self._moved,
        )  # fmt: skip

    @property
    def _moved(self) -> float:
        """Until memory has served a tile's inputs, and its part of the outputs."""
        width = self.axis(self.last).extent if self.is_joined else min(POSITIONS, self.axis(self.last).extent)
        rows = TEAMS if self.is_joined else 1
        read = self.of.in_channels * ((width * rows + 8 - 2) / 8) / rows  # sectors, from any two words on
        made = [axis.outputs for axis in self.of.axes]
        written = self.of.out_channels * sectors(self.box, made, 4) / self.tiles
        return cost.walked_sectors(self.machine, read + written)

    @property
    def tiles(self) -> int:
        """Of an item, the second of the last two rows of an odd number included."""
        return -(-self.read(self.outer) // TEAMS) * TEAMS * self.read(self.inner)

    @property
    def total_clocks(self) -> float:
        """Of all multiprocessors, by the one with most items."""
        most = -(-self.items // max(1, self.sms // self.channel_tiles))
        return cost.scattered_items(self.machine, most, self.tiles * self.clocks) * self.sms


NONE = Axis(1, 1, 1, 1, ((Tap(0, 0),),), 1)


def scattered(conv: Convolution, gpu: Gpu) -> Scatter | None:
    """How warpgroups would share a convolution so; None where they do not serve it: half types, tensors that are not
    contiguous, sums and reductions, pools."""
    of = conv.correlation
    if conv.source.dtype != "float32" or conv.reductions or conv.crossings or conv.pool or conv.spread:
        return None
    if any(each.sums for each in conv.results) or plain(conv.source.strides, of.in_shape) != contiguous(of.in_shape):
        return None
    return scatter(of, gpu, exact=conv.keeps_float32)


@lru_cache(maxsize=256)
def scatter(of: Correlation, gpu: Gpu, *, exact: bool = False) -> Scatter | None:
    """The division of least estimated time; None where there is none."""
    return min(_divisions(of, gpu, exact), key=lambda each: each.total_clocks, default=None)


def best_scatters(of: Correlation, count: int, gpu: Gpu, *, exact: bool = False) -> list[Scatter]:
    """So many of least estimated time, each with other boxes or another order of dims."""
    return least(_divisions(of, gpu, exact), count, lambda each: (each.box, each.inner))


def serves(of: Correlation, gpu: Gpu) -> bool:
    """Whether a GPU has the instructions, copies end within the tensor, and each output is reached by one input at its
    place or before and one there or behind, as with padding of no more than all taps but one."""

    def is_served(axis: Axis) -> bool:
        first, last = axis.shifts[0], axis.shifts[-1]
        return axis.in_stride == 1 and first <= 0 <= last and axis.outputs <= axis.extent - first

    return (
        gpu.compute_capability == (9, 0)
        and of.is_dense
        and math.prod(of.phases) == 1
        and not of.folds
        and len(of.axes) > 1
        and all(map(is_served, of.axes))
        and 0 < len(of.products) <= MOST_PRODUCTS
        and math.prod(of.in_shape) % UNIT == 0
        and of.out_channels <= 2 * CHANNELS
    )


def _divisions(of: Correlation, gpu: Gpu, exact: bool) -> Iterator[Scatter]:
    if not serves(of, gpu):
        return
    steps = -(-of.in_channels // (UNIT * STEP_UNITS))
    last = len(of.axes) - 1
    orders: list[tuple[int | None, int]] = [(None, 0)] if last == 1 else [(0, 1), (1, 0)]
    for (inner, outer), width in itertools.product(orders, _widths(of.axes[-1])):
        for parts in itertools.product(PARTS, PARTS if inner is not None else (1,)):
            box = [width] * (last + 1)
            box[outer] = -(-of.axes[outer].outputs // parts[0])
            if inner is not None:
                box[inner] = -(-of.axes[inner].outputs // parts[1])
            wanted = Scatter(of, UNIT, steps, tuple(box), CHANNELS, ((0,),), 1, inner=inner, outer=outer, exact=exact,
                             sms=gpu.sms, machine=machine_of(gpu))  # fmt: skip
            yield from _held(wanted, gpu)


def _held(wanted: Scatter, gpu: Gpu) -> Iterator[Scatter]:
    """With as many places for inputs as fit, at least two."""
    if wanted.most_steps < 1:
        return
    sums = wanted.groups * wanted.columns // 2
    channels = wanted.of.in_channels
    is_filled = channels == wanted.steps * CHANNELS or wanted.chunks == 1  # or places hold channels of another chunk
    are_dense = len(wanted.axis(wanted.inner).phases[0]) == wanted.groups  # or sums begin anywhere
    if sums > MOST_SUMS or wanted.columns > 256 or not is_filled or not are_dense:
        return
    for slots in range(MOST_SLOTS, 1, -1):
        found = replace(wanted, slots=slots)
        if found.shared_bytes <= gpu.shared_memory_per_block_bytes:
            yield found
            return


def _widths(axis: Axis) -> Iterator[int]:
    """All outputs of a row, where one instruction has all its inputs, or those that one has all inputs of."""
    if axis.extent <= POSITIONS:
        yield axis.outputs
    else:
        yield POSITIONS - len(axis.shifts) + 1
