"""How the gradient of a convolution's weight is divided among warpgroups.

    grad_weight[o, i, tap] = sum over n and q of grad[n, o, q] * in[n, i, q * in_stride + shift]

Of a `wgmma.m64nNk8` (K is 16 for half types) the 64 rows are channels of the gradient and K are positions: neighbours
in memory, so that each lane loads its part of them into registers. The columns are eight channels of the input for each
tap of a row, or of several rows: the input is staged as so many shifted copies as a row has taps. Positions are added
up in an order that suits the loads, the same for both. A block keeps the sums of its taps and channels from its first
position to its last; two warpgroups take positions in turn, a third one stages planes of input, or two do.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property

from crucible.algebra.convolution.correlation import Axis, Correlation
from crucible.schedule.convolution.warpgroup.walks import REGISTERS, ROWS, STAGING_REGISTERS, WARPS
from crucible.schedule.convolution.warpgroup.weight_moves import Moves
from crucible.schedule.convolution.warpgroup.weight_windows import Windowed
from crucible.schedule.machine import H200, Machine

COLUMNS = 8
"""Input channels that lie beside each other."""
TEAMS = 2
"""Warpgroups that multiply."""
STEP_WORDS = 64
"""Of each channel of the gradient at a time, of which a thread holds half in registers while as many come."""
STAGERS = {1: (STAGING_REGISTERS, 40), 2: (64, 36)}
"""Warpgroups that stage: the registers of their threads, and the words of input that one has on its way at once."""


@dataclass(frozen=True)
class Taps:
    """Of one dim, equally spaced."""

    first: int
    """The least shift."""
    spacing: int
    numbers: tuple[int, ...]
    """In the weight, by shift."""
    shifts: tuple[int, ...] = ()
    """Of windows, from the least: several taps read one."""

    @property
    def reach(self) -> int:
        """From the least shift to the greatest."""
        return max(self.shifts) if self.shifts else self.spacing * (len(self.numbers) - 1)


def taps_of(axis: Axis) -> Taps | None:
    """Of a dim of one phase; None where they are not equally spaced."""
    found = sorted(axis.phases[0], key=lambda tap: tap.shift)
    steps = {b.shift - a.shift for a, b in itertools.pairwise(found)}
    if not found or len(steps) > 1:
        return None
    return Taps(found[0].shift, min(steps, default=1), tuple(tap.number for tap in found))


@dataclass(frozen=True)
class WeightShape:
    """A division. A row of one dim is a plane of one row."""

    of: Correlation
    """Whose output channels are rows."""
    item: int
    """Bytes of an element."""
    rows: int
    """Of positions, of a plane."""
    width: int
    """Of them."""
    walk: int
    """Planes of an item."""
    vector: int
    """Words of the gradient that a lane loads at once."""
    loads: int
    """Elements of the input."""
    together: bool
    """Whether the taps of several rows are columns of one instruction."""
    channel_tiles: int
    """Of eight input channels, of a block."""
    outer: int
    """Taps over the dims whose taps are instructions of their own, of a block."""
    slots: int = 0
    """Planes of input in shared memory."""
    raw: int = 0
    """Planes of input that bulk copies bring, as they lie in memory, to be staged; none where threads load them."""
    stagers: int = 1
    """Warpgroups that stage; of two, the last warp stages nothing where it brings planes."""
    moves: Moves | None = None
    """Of the gradient's channels, where those are rows several times."""
    windows: Windowed | None = None
    """The input, where it has a value for each."""
    sms: int = 132
    machine: Machine = field(default=H200, compare=False, repr=False)
    """By whose costs it is estimated."""

    @property
    def threads(self) -> int:
        return (TEAMS + self.stagers) * WARPS * 32

    @property
    def registers(self) -> int:
        """Of a thread that multiplies."""
        share = REGISTERS // self.threads // 8 * 8
        return share + (share - self.staging_registers) * self.stagers // TEAMS // 8 * 8

    @property
    def fits(self) -> bool:
        """Whether nvcc 13.0 spills nothing. A thread that multiplies took, beside its sums and the words of two steps,
        two registers for each instruction of the same positions, and 14; one of two warpgroups that stage half types of
        windows took 67."""
        stages = self.stagers == 1 or self.item == 4 or not self.windows
        return stages and self.sums + 8 * self.depths + 2 * self.chunks + 14 <= self.registers

    @property
    def staging_registers(self) -> int:
        return STAGERS[self.stagers][0]

    @property
    def has_bringer(self) -> bool:
        """Whether a warp of its own brings planes: one that stages as well had 1,011 of P38's 3,540 clocks a plane."""
        return self.stagers > 1 and self.raw > 0

    @property
    def staging_warps(self) -> int:
        return self.stagers * WARPS - self.has_bringer

    @property
    def whole(self) -> Correlation:
        """The correlation whose weight it is, as the gradient lies in memory."""
        return self.moves.of if self.moves else self.of

    # dims

    @cached_property
    def taps(self) -> tuple[Taps, Taps, Taps]:
        """Of planes, rows and columns."""
        found = [taps_of(axis) for axis in self.of.axes]
        first = [Taps(0, 1, (0,))] * (3 - len(found))
        planes, rows, columns = (*first, *(each for each in found if each))
        if self.windows:
            shifts = self.windows.shifts
            columns = Taps(self.windows.first, 1, tuple(range(len(shifts))), shifts)
        return planes, rows, columns

    @property
    def tap_numbers(self) -> list[tuple[int, ...]]:
        """Along all dims, of each: those of instructions of their own are the slowest."""
        if self.windows:
            return [each.taps for each in self.windows.elements]
        return list(itertools.product(*(each.numbers for each in self.taps)))

    @cached_property
    def strides(self) -> tuple[int, int, int]:
        """Of the input."""
        planes, rows, columns = (*[1] * (3 - len(self.of.axes)), *(axis.in_stride for axis in self.of.axes))
        return planes, rows, columns

    @cached_property
    def outputs(self) -> tuple[int, int, int]:
        """Positions."""
        planes, rows, columns = (*[1] * (3 - len(self.of.axes)), *(axis.outputs for axis in self.of.axes))
        return planes, rows, columns

    @cached_property
    def extents(self) -> tuple[int, int, int]:
        """Of the input."""
        planes, rows, columns = (*[1] * (3 - len(self.of.axes)), *(axis.extent for axis in self.of.axes))
        return planes, rows, columns

    @property
    def places(self) -> tuple[int, int, int]:
        """Items of a sample along each dim."""
        planes, rows, columns = self.outputs
        return -(-planes // self.walk), -(-rows // self.rows), -(-columns // self.width)

    @property
    def items(self) -> int:
        return self.of.batch * math.prod(self.places)

    # positions, in words of 4 bytes

    @property
    def per_word(self) -> int:
        return 4 // self.item

    @property
    def depth(self) -> int:
        """Positions of an instruction."""
        return 8 * self.per_word

    @property
    def piece_words(self) -> int:
        """That four lanes load at once, or twice: the order of K is one within so many."""
        return 16 if self.vector == 4 else 8

    @property
    def piece(self) -> int:
        """The same in positions."""
        return self.piece_words * self.per_word

    @property
    def depths_a_row(self) -> int:
        return self.width // self.depth

    @property
    def step_rows(self) -> int:
        """Of a step."""
        return max(1, min(self.rows, STEP_WORDS * self.per_word // self.width))

    @property
    def steps(self) -> int:
        """Of a plane, whose rows are a multiple of theirs."""
        return self.rows // self.step_rows

    @property
    def each_once(self) -> bool:
        """Whether each warpgroup takes one step of every plane: counting them then takes no registers."""
        return self.steps == TEAMS and self.outputs[1] % self.rows == 0

    @property
    def depths(self) -> int:
        """Instructions that a step's words take for each tap."""
        return self.step_rows * self.depths_a_row

    def word(self, step: int, half: int, number: int) -> int:
        """Of a piece, that which lies `number`th of the four in a unit of 16 bytes, of an instruction's half."""
        if self.vector == 1:
            return step * 8 + half * 4 + number
        return number * self.vector + step * 2 + half

    # columns

    @property
    def inner(self) -> int:
        """Taps of an instruction."""
        _, rows, columns = self.taps
        return len(columns.numbers) * (len(rows.numbers) if self.together else 1)

    @property
    def columns(self) -> int:
        return self.inner * COLUMNS

    @property
    def all_outer(self) -> int:
        planes, rows, _ = self.taps
        return len(planes.numbers) * (1 if self.together else len(rows.numbers))

    @property
    def chunks(self) -> int:
        """Instructions of a block for the same positions."""
        return self.outer * self.channel_tiles

    @property
    def sums(self) -> int:
        """Of a thread."""
        return self.chunks * self.columns // 2

    @property
    def out_parts(self) -> int:
        return -(-self.of.out_channels // ROWS)

    @property
    def in_parts(self) -> int:
        return -(-self.of.in_channels // (self.channel_tiles * COLUMNS))

    @property
    def outer_parts(self) -> int:
        return -(-self.all_outer // self.outer)

    @property
    def parts(self) -> int:
        """Of the weight, each made by blocks of its own."""
        return self.out_parts * self.in_parts * self.outer_parts

    @property
    def part_words(self) -> int:
        return self.chunks * self.columns * ROWS

    @property
    def blocks_a_part(self) -> int:
        return max(1, min(self.items, self.sms // self.parts))

    # the input in shared memory: [tile of channels][depth][its half][row][tap of a row][channel] in units of 16 bytes

    @property
    def staged_rows(self) -> int:
        return (self.rows - 1) * self.strides[1] + self.taps[1].reach + 1

    @property
    def row_units(self) -> int:
        return len(self.taps[2].numbers) * COLUMNS

    @property
    def half_units(self) -> int:
        """From the first half of an instruction's positions to the second."""
        return self.staged_rows * self.row_units

    @property
    def tile_units(self) -> int:
        """Of eight channels."""
        return self.depths_a_row * 2 * self.half_units

    @property
    def slot_units(self) -> int:
        return self.channel_tiles * self.tile_units

    @property
    def span(self) -> int:
        """Planes of input that a plane of positions reads."""
        return self.taps[0].reach + 1

    @property
    def in_bulk(self) -> bool:
        """Whether a channel's rows of a plane of input are one run of whole 16 bytes, that is loaded so."""
        return not self.windows and self.places[2] == 1 and self.loads * self.item == 16

    @property
    def raw_pitch(self) -> int:
        """Units of a channel of a plane as it is in memory: 1 beyond a multiple of 8, so that eight channels are read
        without bank conflicts."""
        units = self.staged_rows * self.extents[2] * self.item // 16
        return units + (1 - units) % 8

    @property
    def raw_units(self) -> int:
        """Of a plane."""
        return self.channel_tiles * COLUMNS * self.raw_pitch

    @property
    def barriers(self) -> int:
        """Each slot is loaded and done with, each plane as it lies in memory has come and is read; all have
        multiplied."""
        return 2 * self.slots + 2 * self.raw + 1

    @property
    def shared_units(self) -> int:
        """Of planes; in the end sums of a warpgroup take their place."""
        sums = (TEAMS - 1) * WARPS * 32 * self.sums // 4
        return max(self.slots * self.slot_units + self.raw * self.raw_units, sums)

    @property
    def shared_bytes(self) -> int:
        return self.shared_units * 16 + 8 * self.barriers

    # staging, a thread a piece of one channel's row at a time

    @property
    def before(self) -> int:
        """Elements that are loaded before the first one of a piece, so that loads are aligned."""
        return self.taps[2].first % self.loads

    @property
    def piece_loads(self) -> int:
        elements = (self.piece - 1) * self.strides[2] + self.taps[2].reach + 1
        return -(-(self.before + elements) // self.loads)

    @property
    def piece_registers(self) -> int:
        """That hold what is loaded."""
        choices = -(-self.loads // 4) if self.windows else 0
        return self.piece_loads * (max(1, self.loads * self.item // 4) + choices)

    @property
    def pieces_a_row(self) -> int:
        return self.width // self.piece

    @property
    def pieces(self) -> int:
        """Of a plane."""
        return self.channel_tiles * self.staged_rows * self.pieces_a_row * COLUMNS

    @property
    def pieces_together(self) -> int:
        """That a thread loads before it stores any; of windows fewer, whose words are made of what was loaded."""
        most = STAGERS[self.stagers][1] // (2 if self.windows else 1) // self.piece_registers
        return max(1, min(most, -(-self.pieces // (self.staging_warps * 32))))

    @property
    def safe_loads(self) -> tuple[int, int]:
        """From which to which of a piece's loads lies within a row, of whatever piece: it need not be asked."""
        first = self.taps[2].first - self.before
        last = (self.places[2] * self.width - self.piece) * self.strides[2] + first
        low, high = max(0, -(first // self.loads)), (self.extents[2] - last - self.loads) // self.loads + 1
        return low, max(low, min(self.piece_loads, high))
