"""How a transposed convolution whose phases are the windows of a pool is divided among warpgroups.

A warpgroup makes all phases of its positions, one after another, and keeps in registers what is left of each window so
far. Of at most 32 channels a tile, the 64 rows of an instruction are two phases of the last dim: a lane's two rows are
one channel in both. Their taps are laid over each other by what they read, so some weights are 0, and an infinite input
gives NaN in all windows that it is read for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from crucible.algebra.convolution.correlation import Correlation, Product
from crucible.algebra.convolution.fused import PRODUCT, Convolution
from crucible.algebra.convolution.running import Running
from crucible.algebra.convolution.windows import Windows
from crucible.algebra.expression import nodes
from crucible.algebra.operations import ISSUE_SLOTS, lowered
from crucible.algebra.program import reads
from crucible.algebra.simplify import simplify
from crucible.gpus import Gpu
from crucible.schedule import cost
from crucible.schedule.convolution.estimate import least, sectors
from crucible.schedule.convolution.halo import STEP_UNITS, UNITS
from crucible.schedule.convolution.tiling import MOST_PRODUCTS
from crucible.schedule.convolution.warpgroup.walks import (
    CHANNELS,
    MOST_INSTRUCTIONS,
    ROWS,
    WARPS,
    Walks,
    lengths,
    planes,
    trimmed,
)
from crucible.schedule.machine import H200, Machine, machine_of

TEAMS = ((2, 160, 16), (3, 96, 8))
"""Warpgroups that multiply beside one that stages; of a thread's registers those for sums and windows, units of
channels on their way."""
ENTRY = STEP_UNITS * ROWS + 1
"""Units from one matrix of weights to the next: odd, so that the taps of a channel are written to different banks."""
MOST_LAST_TAPS = 16
"""Of the last dim: where each goes is written in four bits of a number."""
LEAST_KEPT = (1, H200.pools.extreme_clocks)
"""Of a window whose one extreme is followed: its `states`, what its `element` takes."""


@dataclass(frozen=True)
class PooledWalks(Walks):
    """Walks whose box is one plane of windows."""

    states: int = 1
    """Registers for what is known of a window while its elements come."""
    element: int = 1
    """Clocks in which a warp issues what a product does to them."""
    tensors: int = 1
    """Of the windows' size that are read and written."""

    # phases and weights

    @property
    def warp_channels(self) -> int:
        return CHANNELS

    @property
    def pairs(self) -> bool:
        """Whether rows are two phases of the last dim."""
        return self.channels < ROWS

    @property
    def elements(self) -> int:
        """Of a window that come at once."""
        return 2 if self.pairs else 1

    @property
    def passes(self) -> int:
        """In which a window's elements come."""
        return math.prod(self.of.phases) // self.elements

    @cached_property
    def last_taps(self) -> tuple[tuple[int, int], ...]:
        """Of each tap of the last dim: which of the matrices for one tap of the other dims it is in, and the half of
        the matrix."""
        last = self.of.axes[-1]
        if not self.pairs:
            return tuple((number, 0) for number in range(last.kernel))
        shifts = sorted({tap.shift for phase in last.phases for tap in phase})
        halves = enumerate(last.phases)
        of_tap = {tap.number: (shifts.index(tap.shift), half) for half, phase in halves for tap in phase}
        return tuple(of_tap[number] for number in range(last.kernel))

    @property
    def entries_a_tap(self) -> int:
        """Matrices for one tap of the other dims."""
        return 1 + max(entry for entry, _ in self.last_taps)

    @property
    def entries(self) -> int:
        """Matrices of weights for one step of channels."""
        return math.prod(axis.kernel for axis in self.of.axes[:-1]) * self.entries_a_tap

    @cached_property
    def multiplied(self) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        """Of each pass the planes that it reads, the place in each and the matrix that it is multiplied by."""
        found: list[set[tuple[int, int, int]]] = [set() for _ in range(self.passes)]
        kernel = self.of.axes[-1].kernel
        for product in self.of.products:
            outer, last = divmod(product.weight, kernel)
            entry = outer * self.entries_a_tap + self.last_taps[last][0]
            found[product.phase // self.elements].add((*self.place(product), entry))
        return tuple(tuple(sorted(each)) for each in found)

    @property
    def has_gaps(self) -> bool:
        """Whether some rows of matrices are no tap's."""
        return self.entries * self.elements != len(self.of.products)

    # the plane, once for each shift of the last dim

    @property
    def row_pitch(self) -> int:
        """Rows begin with a tile of eight."""
        return -(-self.box[-1] // 8) * 8

    @property
    def copies(self) -> int:
        """Of a plane, each a position further on than the one before, so that taps of the last dim read whole rows."""
        return len(self.of.axes[-1].shifts)

    @property
    def copy_units(self) -> int:
        return self.plane[0] * self.row_pitch

    @property
    def points(self) -> int:
        return self.copies * self.copy_units

    @cached_property
    def columns_of_b(self) -> int:
        return (self.box[-2] if len(self.box) > 1 else 1) * self.row_pitch

    def place(self, product: Product) -> tuple[int, int]:
        """The plane that a tap reads, and the position in it."""
        *outer, last = (given - axis.shifts[0] for given, axis in zip(product.shift, self.of.axes, strict=True))
        row = outer[-1] if outer else 0
        return (outer[0] if len(outer) > 1 else 0), last * self.copy_units + row * self.row_pitch

    @cached_property
    def staged_plane(self) -> tuple[int, int]:
        return trimmed(self, self.plane)[1]

    @property
    def first_column(self) -> int:
        return trimmed(self, self.plane)[0]

    # registers and shared memory

    @property
    def channels_a_lane(self) -> int:
        return 2 // self.elements

    @property
    def own_windows(self) -> int:
        """Of a thread."""
        return self.columns_of_b // 4 * self.channels_a_lane

    @property
    def held(self) -> int:
        """Registers of a thread for sums and windows."""
        return self.columns_of_b // 2 + self.own_windows * self.states

    @property
    def weight_units(self) -> int:
        return self.steps * self.entries * ENTRY

    @property
    def barriers(self) -> int:
        """Each slot is loaded and done with, each warpgroup has its turn, weights are in order."""
        return 2 * self.slots + self.groups + 1

    @property
    def shared_bytes(self) -> int:
        return 16 * (self.weight_units + self.slots * self.slot_units) + 8 * self.barriers

    # time

    @cached_property
    def clocks(self) -> float:
        """Estimate for a plane."""
        channels, again = self.steps * STEP_UNITS * self.unit, (self.walk + self.span - 1) / self.walk
        rounds = -(-math.prod(self.staged_plane) // (32 * WARPS))
        staged = again * cost.pooled_stage(self.machine, rounds * channels)
        item = 16 // self.unit
        windows = [axis.outputs // axis.out_stride for axis in self.of.axes]
        moved: float = sectors(self.box, windows, item) * self.channels * 32 * self.tensors
        moved += again * math.prod(self.staged_plane) * channels * item
        return cost.pooled_plane(
            self.machine, instructions=sum(map(len, self.multiplied)) * self.steps,
            first=len(self.multiplied[0]) * self.steps, passes=self.passes, columns=self.columns_of_b, rows=ROWS,
            channels=self.channels, element=self.element, tensors=self.tensors, groups=self.groups, staged=staged,
            moved=moved,
        )  # fmt: skip

    @property
    def total_clocks(self) -> float:
        """Of all multiprocessors, by the one with most items."""
        rounds = -(-self.items // max(1, self.sms // self.channel_tiles))
        waits = self.slots <= self.span * self.groups
        items = cost.walked_items(self.machine, rounds, self.walk * self.clocks, waits=waits)
        return (cost.pooled_start(self.machine) + items) * self.sms


def pool_division(conv: Convolution, gpu: Gpu) -> PooledWalks | None:
    """How warpgroups would share a convolution whose phases are the windows of its pool; None where they do not serve
    it: as for one phase, and where something is summed or reduced."""
    if conv.pool is None or conv.keeps_float32 or conv.spread or conv.reductions or conv.crossings:
        return None
    if any(each.sums for each in conv.results):
        return None
    kept, tensors = work_of(conv, conv.pool, machine_of(gpu))
    return walk_pool(conv.correlation, UNITS[conv.source.dtype], conv.pool.sizes, gpu, kept, tensors)


def work_of(conv: Convolution, pool: Windows, machine: Machine) -> tuple[tuple[int, int], int]:
    """What `walk_pool` takes for `kept` and `tensors`."""
    running = Running(conv, pool)
    tensors = len(conv.results) + sum(any(each.strides[2:]) for each in conv.operands)
    return (len(running.states), element_clocks(running, machine)), tensors


def element_clocks(running: Running, machine: Machine) -> int:
    """See `PooledWalks.element`."""
    compared = running.pool.kind != "avg" and not (running.direction or running.ends)
    chain = nodes(lowered(simplify(running.pool.before).exprs[0])) if compared else ()
    functions = sum(ISSUE_SLOTS.get(node.kind, 0) for node in chain if PRODUCT in reads(node))
    return cost.pooled_element(
        machine, kind=running.pool.kind, followed=bool(running.direction), keeps=running.keeps,
        ends=len(running.ends.ends) if running.ends else 0, functions=functions,
    )  # fmt: skip


@lru_cache(maxsize=256)
def walk_pool(
    of: Correlation, unit: int, pool: tuple[int, ...], gpu: Gpu, kept: tuple[int, int] = LEAST_KEPT, tensors: int = 1
) -> PooledWalks | None:
    """The division of least estimated time; None where there is none. `kept` are the `states` of a window and what one
    `element` takes."""
    found = _pooled_walks(of, unit, pool, gpu, kept, tensors)
    return min(found, key=lambda each: each.total_clocks, default=None)


def best_pooled_walks(
    of: Correlation,
    unit: int,
    pool: tuple[int, ...],
    count: int,
    gpu: Gpu,
    kept: tuple[int, int] = LEAST_KEPT,
    tensors: int = 1,
) -> list[PooledWalks]:
    """So many of least estimated time, each with other planes, warpgroups or rows; see `walk_pool`."""
    return least(
        _pooled_walks(of, unit, pool, gpu, kept, tensors), count, lambda each: (each.box, each.groups, each.channels)
    )


def _serves(of: Correlation, pool: tuple[int, ...], gpu: Gpu) -> bool:
    """As for several phases that are written."""
    return (
        gpu.compute_capability == (9, 0)
        and of.is_dense
        and math.prod(of.phases) > 1
        and of.phases == pool
        and not of.folds
        and all(axis.in_stride == 1 and all(axis.phases) for axis in of.axes)
        and all(axis.outputs >= axis.out_stride for axis in of.axes)
        and of.axes[-1].kernel <= MOST_LAST_TAPS
        and math.prod(axis.kernel for axis in of.axes) <= MOST_PRODUCTS
        and 0 < len(of.products) <= MOST_PRODUCTS
    )


def _pooled_walks(
    of: Correlation, unit: int, pool: tuple[int, ...], gpu: Gpu, kept: tuple[int, int], tensors: int
) -> Iterator[PooledWalks]:
    if not _serves(of, pool, gpu):
        return
    steps = -(-of.in_channels // (unit * STEP_UNITS))
    rows = (ROWS, ROWS // 2) if of.phases[-1] == 2 else (ROWS,)
    ways = itertools.product(planes(of), TEAMS, lengths(of), rows)
    for box, (groups, most, most_units), length, channels in ways:
        wanted = PooledWalks(of, unit, steps, box, channels, ((0,),), 1, walk=length, groups=groups,
                             sms=gpu.sms, machine=machine_of(gpu), states=kept[0], element=kept[1],
                             tensors=tensors, pool=pool)  # fmt: skip
        fits = wanted.held <= most and wanted.columns_of_b <= 256 and steps * STEP_UNITS <= most_units
        if fits and steps * sum(map(len, wanted.multiplied)) <= MOST_INSTRUCTIONS:
            yield from _with_slots(wanted, gpu)


def _with_slots(wanted: PooledWalks, gpu: Gpu) -> Iterator[PooledWalks]:
    """As many planes in shared memory as fit: those of each warpgroup's windows, which may be of different items, and
    up to two to come."""
    for more in (2, 1, 0):
        found = replace(wanted, slots=wanted.span * wanted.groups + more)
        if found.shared_bytes <= gpu.shared_memory_per_block_bytes:
            yield found
            return
