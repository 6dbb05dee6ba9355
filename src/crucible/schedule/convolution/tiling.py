"""How a correlation is divided: which output a block makes, and what each of its warps multiplies.

A block takes a box of positions q and a tile of output channels, for all phases. Its inputs (the box with its halo) and
its weights lie in shared memory; a warp multiplies `m_tiles` x `n_tiles` tiles of 16 channels x 8 positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from crucible.algebra.convolution.correlation import Correlation, Product
from crucible.gpus import SHARED_RESERVED_BYTES, Gpu
from crucible.schedule import cost
from crucible.schedule.convolution.estimate import cut, read_sectors, written_sectors
from crucible.schedule.convolution.halo import IN_FLIGHT, STEP_UNITS, Boxes

WARPS = 8
BANKS = 32
"""Words of a row of shared memory."""
STATIC_SHARED = 2048
"""Bytes that are kept free for a block's static shared memory: sums of its channels."""
MOST_SUMS = 128
"""Registers for products; two blocks a multiprocessor leave 128 in all, and 64 of them for these."""
SUMS_FOR_TWO = 64
MOST_PRODUCTS = 128
"""Taps, over all phases, that are written out one by one."""


@dataclass(frozen=True)
class Tiling(Boxes):
    """See above."""

    channels: int
    """Output channels of a block, a multiple of 16."""
    teams: tuple[tuple[int, ...], ...]
    """The phases that each team of warps makes."""
    rows: int
    """Warps of a team along channels."""
    ahead: bool = False
    """Whether the next inputs are loaded beside the multiplication, into a second halo (of float32 alone)."""
    blocks: int = 1
    """That share a multiprocessor."""
    made_from: Correlation | None = None
    """What is made, where `of` is it with its taps folded."""
    pool: tuple[int, ...] = ()
    """The windows of which one value is left, along each dim; none where all outputs are written."""
    spread: tuple[int, ...] = ()
    """The windows over whose elements inputs are spread when they are staged, along each dim."""
    sms: int = 132
    """Of the GPU."""

    @property
    def in_flight(self) -> int:
        """A block alone has twice the registers."""
        return IN_FLIGHT * (2 if self.blocks == 1 else 1)

    @property
    def made(self) -> Correlation:
        return self.made_from or self.of

    @property
    def columns(self) -> int:
        """Warps of a team along positions."""
        return WARPS // (len(self.teams) * self.rows)

    @property
    def m_tiles(self) -> int:
        return self.channels // 16 // self.rows

    @property
    def n_tiles(self) -> int:
        return -(-math.prod(self.box) // (8 * self.columns))

    @property
    def slots(self) -> int:
        """Phases whose sums a warp holds at once."""
        return max(map(len, self.teams))

    @cached_property
    def is_paired(self) -> bool:
        """Whether every team makes two alternating phases of the last dim, of each place in the others: their products
        go to the tile together, 16 bytes at a time."""
        if self.of.phases[-1] != 2 or self.box[-1] % 2:
            return False
        return all(team[i] % 2 == 0 and team[i : i + 2] == (team[i], team[i] + 1) for team in self.teams
                   for i in range(0, len(team), 2))  # fmt: skip

    @property
    def sums(self) -> int:
        """Registers of a thread for sums."""
        return self.slots * self.m_tiles * self.n_tiles * 4

    @property
    def is_resident(self) -> bool:
        """Whether all weights of a block fit in shared memory, and stay there."""
        return self.staged >= self.steps

    @property
    def step_weight_words(self) -> int:
        return len(self.of.products) * self.channels // 16 * 128

    @property
    def weight_words(self) -> int:
        return self.staged * self.step_weight_words

    @property
    def output_box(self) -> tuple[int, ...]:
        """Outputs of a block along each dim; all of the last where its taps are folded."""
        if self.of.folds:
            return (*self.box[:-1], self.made.axes[-1].outputs)
        return tuple(n * s for n, s in zip(self.box, self.of.phases, strict=True))

    @property
    def pools_registers(self) -> bool:
        """Whether a window is the phases of a position, and one thread has all of them."""
        return self.pool == self.of.phases and len(self.teams) == 1 < math.prod(self.pool)

    @property
    def made_box(self) -> tuple[int, ...]:
        """What is written of a block's outputs along each dim."""
        return tuple(n // size for n, size in zip(self.output_box, self.pool or (1,) * len(self.box), strict=True))

    @property
    def made_shape(self) -> tuple[int, ...]:
        """Of all that is written: [N, C, *spatial]."""
        shape = self.made.out_shape
        return (*shape[:2], *(n // size for n, size in zip(shape[2:], self.pool or (1,) * len(self.box), strict=True)))

    @property
    def pitch(self) -> int:
        """Words of a row of the tile of products, a channel's outputs in the order of the output. Eight lanes write 16
        bytes each of two rows at a time, and 16 lanes 8 bytes each of four: rows that lie 16, or 8, beyond a multiple
        of 32 words are written without bank conflicts. Without phases, or where one value is left of them, what
        positions beyond the box leave has its place at the end."""
        outputs = math.prod(self.output_box)
        if math.prod(self.of.phases) == 1 or self.pools_registers:
            outputs = self.columns * self.n_tiles * 8
        beyond = 16 if self.is_paired and not self.pools_registers else 8
        return outputs + (beyond - outputs) % 32

    @property
    def tile_rows(self) -> int:
        """Of one slice of the products: 16 channels of each row of warps, or all where taps are folded into them."""
        return self.channels if self.of.folds else 16 * self.rows

    @property
    def tile_words(self) -> int:
        """With choices behind the products where windows come from registers."""
        return self.tile_rows * self.pitch * (2 if self.pools_registers else 1)

    @property
    def turn_words(self) -> int:
        """Of a halo, and of the tile of products, which takes its place. Where weights turn with them the next turn's
        begin with whole banks: else copies of 16 bytes lie in two rows of banks, and of 112 blocks, each by itself on
        its multiprocessor, two convolutions took 1.03 and 1.04 times as long (before_and_after_h200.json)."""
        words = max(self.halo_words, self.tile_words)
        return words if self.weight_turns == 1 else -(-words // BANKS) * BANKS

    def part_words(self, reductions: int) -> int:
        """Static shared memory for what each warp has of reductions over space."""
        return reductions * (WARPS // self.rows) * self.channels

    def reduces_in_registers(self, reductions: int) -> bool:
        return not self.of.folds and 4 * self.part_words(reductions) <= STATIC_SHARED

    @property
    def weight_turns(self) -> int:
        """Places for weights: two where they are loaded ahead as well."""
        return 2 if self.ahead and not self.is_resident else 1

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.weight_turns * self.weight_words + (2 if self.ahead else 1) * self.turn_words)

    @property
    def parts_of_image(self) -> int:
        """Of a reduction over space: what a channel of an image has in so many parts."""
        return math.prod(self.boxes)

    @property
    def channel_tiles(self) -> int:
        return -(-self.of.out_channels // self.channels)

    @property
    def padded_channels(self) -> int:
        """Of a block's part of a sum, those that fill the last tile included."""
        return self.channel_tiles * self.channels

    def products_of(self, team: int) -> list[tuple[int, Product]]:
        """With their numbers."""
        return [(i, p) for i, p in enumerate(self.of.products) if p.phase in self.teams[team]]

    @property
    def clocks(self) -> float:
        """Of an item that writes what it makes: see `clocks_with`."""
        return self.clocks_with(1)

    def clocks_with(self, tensors: int, apart: int = 1, products: int = 1, chain_slots: int = 0) -> float:
        """Estimate of a multiprocessor's clocks for one item of one channel tile (see `schedule.cost`).

        So many `tensors` of the output's size are written or read; without any, products do not leave registers. Words
        that lanes store side by side lie `apart`. So many `products` take the place of one. Functions in
        chains have so many instructions for an output."""
        return self._work(tensors, apart, products, chain_slots).clocks(self.machine, self.blocks)

    def _work(self, tensors: int, apart: int, products: int, chain_slots: int) -> cost.Work:
        """Of an item."""
        passed, issued, waited = map(sum, zip(self._staged(), self._finished(tensors, apart), strict=True))
        made = self.channels * math.prod(self.made_box) / 32
        issued += cost.warp_chain(self.machine, made, chain_slots, tensors)
        cores = products * self._tensor_cores
        return cost.Work(cores, self._fragments, passed, issued, waited, self._traffic(tensors))

    @property
    def _tensor_cores(self) -> float:
        """Clocks of the busiest one: every fourth warp has the same."""
        warps = self.rows * self.columns
        products = [len(self.products_of(team)) for team in range(-(-WARPS // warps))]
        busiest = max(sum(products[warp // warps] for warp in range(core, WARPS, 4)) for core in range(4))
        return cost.warp_products(self.machine, self.steps * 4) * busiest * self.m_tiles * self.n_tiles

    @property
    def _fragments(self) -> float:
        """Wavefronts: four for each two tiles of an input that products share, and for each tile of weights."""
        found = 0
        for team in range(len(self.teams)):
            products = self.products_of(team)
            shifts = len({product.shift for _, product in products})
            found += shifts * 4 * -(-self.n_tiles // 2) + len(products) * 4 * self.m_tiles
        return self.steps * found * self.rows * self.columns

    def _staged(self) -> tuple[float, float, float]:
        """Wavefronts, instructions' clocks and waiting until all inputs and weights have come."""
        positions, units = math.prod(self.halo), self.steps * STEP_UNITS
        stagings = -(-self.steps // self.staged)
        passed, waited = self.loaded(units, self.ahead), 0.0
        issued = cost.staged_units(self.machine, units * positions, ahead=self.ahead)
        if self.spread:
            passed, issued = self.spread_passes(self.spread, units), self.spread_clocks(self.spread, self.steps)
            rounds = max(self.spread_rounds(self.spread), 0 if self.is_resident else 1)  # weights wait as well
            waited = cost.load_rounds(self.machine, stagings * rounds)
        elif not self.ahead:
            waited = cost.load_rounds(self.machine, stagings * self.load_rounds)
        if not self.is_resident:
            passed += self.steps * self.step_weight_words / 32
        return passed, issued, waited

    def _finished(self, tensors: int, apart: int) -> tuple[float, float, float]:
        """The same from the last product until all is written."""
        m, elements = self.machine, math.prod(self.of.phases) * self.channels * math.prod(self.box) / 32
        made = self.channels * math.prod(self.made_box) / 32
        if not tensors:
            return 0, cost.reduced_products(m, elements), cost.tile_slices(m, 1)
        waited = cost.tile_slices(m, self.m_tiles)
        stores = tensors * apart * cut(self.made_box, self.made_shape[2:])
        if self.pools_registers:
            return made * (2 + stores), cost.pooled_products(m, elements, made), waited
        if self.of.folds:
            made = math.prod(self.output_box) * self.made.out_channels / 32
            passed = elements + cost.folded_wavefronts(m, made, len(self.of.folds))
            return passed, cost.folded_products(m, elements, made), cost.tile_slices(m, 1)
        placed = elements * (4 if math.prod(self.of.phases) > 1 and not self.is_paired else 1)
        return placed + elements + made * stores, cost.placed_products(m, elements), waited

    def _traffic(self, tensors: int) -> float:
        """Clocks for what an item reads (from memory or the L2 cache) and writes."""
        item = 16 // self.unit
        written = written_sectors(self.made_box, self.made_shape[2:], item, self.machine.sm.partly)
        written *= min(self.channels, self.made.out_channels) * tensors
        read = read_sectors(self.halo, [axis.extent for axis in self.of.axes], item)
        if self.spread:  # and their choices
            whole = [axis.extent // size for axis, size in zip(self.of.axes, self.spread, strict=True)]
            read = sum(read_sectors(self.windows(self.spread), whole, bytes_) for bytes_ in (item, 1))
        weights = 0 if self.is_resident else self.steps * self.step_weight_words / 8
        return cost.sector_traffic(self.machine, written + read * self.of.in_channels + weights)

    @property
    def total_clocks(self) -> float:
        """Of all multiprocessors, until all is done: see `cost.Work.total`."""
        return self.total_clocks_with(1)

    def total_clocks_with(self, tensors: int, apart: int = 1, products: int = 1, chain_slots: int = 0) -> float:
        items = self.items * self.channel_tiles * self.of.groups
        return self._work(tensors, apart, products, chain_slots).total(self.machine, items, self.blocks, self.sms)


def blocks_that_fit(shared_bytes: int, sums: int, gpu: Gpu) -> int:
    """Blocks of so much shared memory and so many registers for sums on a multiprocessor: up to two."""
    needed = shared_bytes + STATIC_SHARED
    if needed > gpu.shared_memory_per_block_bytes or sums > MOST_SUMS:
        return 0
    shares = 2 * (needed + SHARED_RESERVED_BYTES) <= gpu.shared_memory_per_sm_bytes
    return 2 if shares and sums <= SUMS_FOR_TWO else 1
