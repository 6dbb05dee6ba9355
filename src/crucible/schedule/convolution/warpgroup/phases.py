"""How a correlation of several phases (a transposed convolution of stride 2 and more) is divided among warpgroups.

A block makes a share of the phases of all dims but the last, those of the last in the same registers: so a thread has
neighbours of the output, which it stores as they are. The weights of the share stay in shared memory. A plane of inputs
is staged once for all phases of the share, which are made one after the other, each by the warpgroup whose turn it is.
Shares have more or fewer taps, so blocks are dealt by what each takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from crucible.algebra.convolution.correlation import Correlation, Product
from crucible.algebra.convolution.fused import PRODUCT, Convolution
from crucible.algebra.expression import nodes
from crucible.algebra.operations import ISSUE_SLOTS, lowered
from crucible.algebra.program import reads
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.schedule import cost
from crucible.schedule.convolution.estimate import least, written_sectors
from crucible.schedule.convolution.halo import STEP_UNITS, UNITS
from crucible.schedule.convolution.tiling import MOST_PRODUCTS
from crucible.schedule.convolution.warpgroup.walks import (
    CHANNELS,
    MOST_INSTRUCTIONS,
    ROWS,
    TEAMS,
    WARPS,
    Walks,
    lengths,
    planes,
    trimmed,
    with_slots,
)
from crucible.schedule.machine import Machine, machine_of

ROW_STEPS = (8, 4)
"""Positions of which a row in shared memory is a multiple: of 8, and no tile of eight lies in two rows; of 4, and of
float32 a tile still begins with a sector of the output."""
ISSUED = 8
"""Instructions of a chain's element, where it is not known."""
MOST_AHEAD = 8
"""Units of 16 bytes of a plane that a thread asks for ahead: twice as many registers, the ones that come and the ones
that are stored, in the 88 it has."""
CHAIN, MIXED, WRITES = 64, 88, 8
"""Registers for all but a thread's sums and what it loads ahead of its chain; the same where tiles of eight may lie in
two rows (with 64, P38's second pass spilled at N = 144); and for each tensor that is written (without, it spilled at
N = 72 in float16)."""


@dataclass(frozen=True)
class PhaseWalks(Walks):
    """Walks whose box is one plane of positions, each with all its phases of the last dim."""

    together: int = 1
    """Outer phases (of all dims but the last, counted like products') of a share."""
    tensors: int = 1
    """Of the output's size that are written."""
    fetched: int = 0
    """Bytes of other tensors that a chain reads for each output."""
    issued: int = ISSUED
    """Instructions of a chain's element."""

    # phases

    @property
    def warp_channels(self) -> int:
        return CHANNELS

    @property
    def last_phases(self) -> int:
        """Phases of the last dim."""
        return self.of.phases[-1]

    @property
    def shares(self) -> int:
        return math.prod(self.of.phases[:-1]) // self.together

    @cached_property
    def numbered(self) -> tuple[tuple[tuple[int, Product], ...], ...]:
        """Of each outer phase its products, with their numbers."""
        found: list[list[tuple[int, Product]]] = [[] for _ in range(self.shares * self.together)]
        for number, product in enumerate(self.of.products):
            found[product.phase // self.last_phases].append((number, product))
        return tuple(map(tuple, found))

    @cached_property
    def taps_of_shares(self) -> tuple[range, ...]:
        """Of each share the numbers of its products."""
        each = [[number for number, _ in of_phase] for of_phase in self.numbered]
        first = range(0, len(each), self.together)
        return tuple(range(each[s][0], each[s + self.together - 1][-1] + 1) for s in first)

    @property
    def parts_of_image(self) -> int:
        return math.prod(self.places) * self.shares * self.groups

    @property
    def rotated(self) -> int:
        """By how much a warpgroup's first phase moves on from plane to plane: as taken in turn, and by one where it
        would be the same ones of every plane, since phases have more or fewer taps (P38's sum over space on the H200:
        0.287 ms, with the same ones 0.298)."""
        return -self.together % self.groups or 1

    @property
    def turns(self) -> int:
        """None: tensor cores take products as they come. Had each to wait until another's are on their way, one that
        has few taps would wait for one that has many (P38's sum over space on the H200: 0.298 ms, with turns 0.306;
        its softmax's gradient 0.706, with turns 0.735)."""
        return 0

    # shared memory

    @cached_property
    def row_pitch(self) -> int:
        """That with fewest positions to multiply."""
        rows = self.box[-2] if len(self.box) > 1 else 1

        def multiplied(pitch: int) -> int:
            return -(-((rows - 1) * pitch + self.box[-1]) // 8)

        return min((-(-self.plane[1] // step) * step for step in ROW_STEPS), key=multiplied)

    @cached_property
    def staged_plane(self) -> tuple[int, int]:
        return trimmed(self, self.plane)[1]

    @property
    def first_column(self) -> int:
        return trimmed(self, self.plane)[0]

    @property
    def weight_units(self) -> int:
        return self.steps * max(map(len, self.taps_of_shares)) * STEP_UNITS * ROWS

    @property
    def shared_bytes(self) -> int:
        return 16 * (self.weight_units + self.slots * self.slot_units) + 8 * self.barriers

    # registers

    @property
    def held(self) -> int:
        """Registers of a thread that multiplies: its sums, what it loads ahead of its chain, and all else."""
        of_chain = (MIXED if self.row_pitch % 8 else CHAIN) + WRITES * self.tensors
        return (self.columns_of_b // 2 + self.chain_tiles * self.fetched) * self.last_phases + of_chain

    # time

    def clocks_of(self, share: int) -> float:
        """Estimate for a plane of a share, without what memory takes."""
        own = self.numbered[share * self.together : (share + 1) * self.together]
        products = cost.phase_products(self.machine, self.steps * sum(map(len, own)), self.columns_of_b)
        sector_bytes = self.outputs_a_plane * self.last_phases * ROWS * self.bytes_an_output
        return cost.phase_plane(
            self.machine, phases=len(own), products=products, issued=self.elements * self.issued, moved=sector_bytes,
            groups=self.groups, staged=self.stage_clocks,
        )  # fmt: skip

    @property
    def asks_ahead(self) -> bool:
        """Whether the next plane is on its way while one is stored."""
        return len(self.box) == 3 and self.unit == 4 and self.rounds * self.steps * STEP_UNITS <= MOST_AHEAD

    @property
    def rounds(self) -> int:
        """Positions of a plane that a thread stages."""
        return -(-math.prod(self.staged_plane) // (32 * WARPS))

    @property
    def stage_clocks(self) -> float:
        """Of a plane of outputs."""
        values = self.rounds * self.steps * STEP_UNITS * self.unit
        plane = cost.phase_stage(self.machine, values, self.groups, ahead=self.asks_ahead)
        return plane * (self.walk + self.span - 1) / self.walk

    @property
    def elements(self) -> int:
        """Of a phase's chain, a thread's."""
        return self.chain_tiles * 4 * self.last_phases

    @property
    def chain_tiles(self) -> int:
        """Eights of positions that chains run over."""
        if self.row_pitch % 8:
            return self.columns_of_b // 8
        return self.outputs_a_plane // self.box[-1] * -(-self.box[-1] // 8)

    @property
    def bytes_an_output(self) -> int:
        """Written and read."""
        return self.tensors * (16 // self.unit) + self.fetched

    @property
    def moved(self) -> float:
        """Clocks in which all multiprocessors' memory moves all there is."""
        of = self.of
        planes = self.items * (self.walk + self.span - 1)
        read = planes * math.prod(self.staged_plane) * self.steps * STEP_UNITS * 16
        read *= self.shares * self.channel_tiles
        outputs = self.items * self.walk * self.outputs_a_plane * math.prod(of.phases) * self.channel_tiles * ROWS
        return cost.walked_bytes(self.machine, outputs * self.bytes_an_output + read)

    @property
    def written(self) -> float:
        """Clocks in which memory takes what is written, of which blocks fill sectors partly: of rows of 19 floats most
        (a module of such, 3 to 64 channels in three dims, took 2.5 times what all else says)."""
        width, outputs = self.box[-1] * self.last_phases, self.of.axes[-1].outputs
        rows = self.items * self.walk * self.outputs_a_plane / self.box[-1] * math.prod(self.of.phases[:-1])
        each = written_sectors((min(width, outputs),), (outputs,), 16 // self.unit, self.machine.sm.partly)
        return cost.walked_sectors(self.machine, rows * self.channel_tiles * ROWS * self.tensors * each)

    @cached_property
    def dealt(self) -> tuple[int, ...]:
        """The blocks of each part: of a tile of channels, share by share."""
        blocks = [1] * (self.channel_tiles * self.shares)
        while sum(blocks) < self.sms and min(blocks) < self.items:
            blocks[self._last(blocks)] += 1
        return tuple(min(n, self.items) for n in blocks)

    def _last(self, blocks: list[int]) -> int:
        """The part that takes longest."""
        return max(range(len(blocks)), key=lambda part: (self.time_of(part, blocks[part]), -blocks[part]))

    def time_of(self, part: int, blocks: int) -> float:
        """Clocks of the blocks of a part, where there are so many."""
        used = self.span + -(-self.groups // self.together)  # warpgroups are at phases of as many planes less one
        planes = self.walk * self.clocks_of(part % self.shares)
        return cost.walked_items(self.machine, -(-self.items // blocks), planes, waits=self.slots <= used)

    @property
    def total_clocks(self) -> float:
        """Of all multiprocessors, by the part that takes longest."""
        longest = max(self.time_of(part, blocks) for part, blocks in enumerate(self.dealt))
        clocks = max(longest * max(self.sms, sum(self.dealt)), self.moved)
        return max(cost.phase_rows(self.machine, clocks, self.of.axes[-1].outputs, self.tensors), self.written)


def phase_division(conv: Convolution, gpu: Gpu) -> PhaseWalks | None:
    """How warpgroups would share a convolution of several phases; None where they do not serve it: as for one phase,
    and where maxima are sought, or chains read more than registers hold."""
    if conv.keeps_float32 or conv.pool or conv.spread or conv.crossings:
        return None
    if any(each.kind == "max" for each in conv.reductions):
        return None
    written = sum(not each.sums for each in conv.results)
    return walk_phases(conv.correlation, UNITS[conv.source.dtype], gpu, written, fetched_by(conv),
                       issued_by(conv, machine_of(gpu)))  # fmt: skip


def fetched_by(conv: Convolution) -> int:
    """Bytes of tensors that chains read for each output."""
    return sum(ITEM_BYTES[each.dtype] for each in conv.loaded)


def issued_by(conv: Convolution, machine: Machine) -> int:
    """Instructions of its chains for each output, those of large functions several times: all outputs of a thread stand
    in the code, which then is more than caches of instructions hold."""
    chains = (node for node in nodes(*map(lowered, conv.exprs)) if PRODUCT in reads(node))
    times = {kind: cost.function_instructions(machine, slots) for kind, slots in ISSUE_SLOTS.items()}
    return len(conv.reductions) + sum(times.get(node.kind, 0) for node in chains)


@lru_cache(maxsize=256)
def walk_phases(
    of: Correlation, unit: int, gpu: Gpu, tensors: int = 1, fetched: int = 0, issued: int = ISSUED
) -> PhaseWalks | None:
    """The division of least estimated time, where so many tensors are written, so many bytes an output are read and a
    chain has so many instructions; None where there is none."""
    return min(_phase_walks(of, unit, gpu, tensors, fetched, issued), key=lambda each: each.total_clocks, default=None)


def best_phase_walks(
    of: Correlation, unit: int, count: int, gpu: Gpu, tensors: int = 1, fetched: int = 0, issued: int = ISSUED
) -> list[PhaseWalks]:
    """So many of least estimated time, each with other planes, warpgroups or shares."""
    return least(
        _phase_walks(of, unit, gpu, tensors, fetched, issued),
        count,
        lambda each: (each.box, each.groups, each.together),
    )


def _serves(of: Correlation, gpu: Gpu) -> bool:
    """As for walks of one phase; and every phase has taps."""
    return (
        gpu.compute_capability == (9, 0)
        and of.is_dense
        and math.prod(of.phases) > 1
        and not of.folds
        and all(axis.in_stride == 1 and all(axis.phases) for axis in of.axes)
        and 0 < len(of.products) <= MOST_PRODUCTS
    )


def _phase_walks(of: Correlation, unit: int, gpu: Gpu, tensors: int, fetched: int, issued: int) -> Iterator[PhaseWalks]:
    if not _serves(of, gpu):
        return
    steps = -(-of.in_channels // (unit * STEP_UNITS))
    if steps * len(of.products) > MOST_INSTRUCTIONS:
        return
    shared = [math.prod(of.phases[dim:-1]) for dim in range(len(of.axes))]
    ways = itertools.product(planes(of), TEAMS, lengths(of), sorted(set(shared)))
    for box, (groups, _, most_units), length, together in ways:
        wanted = PhaseWalks(of, unit, steps, box, ROWS, ((0,),), 1, walk=length, groups=groups,
                            sms=gpu.sms, machine=machine_of(gpu), together=together, tensors=tensors,
                            fetched=fetched, issued=issued)  # fmt: skip
        narrow = wanted.row_pitch < 8 and wanted.outputs_a_plane > box[-1]  # eight positions lie in two rows at most
        fits = wanted.columns_of_b <= 256 and wanted.held <= wanted.registers
        if fits and not narrow and steps * STEP_UNITS <= most_units:
            yield from with_slots(wanted, gpu)
