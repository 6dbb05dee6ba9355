"""How a correlation is divided: which output a block makes, and what each of its warps multiplies.

A block takes a box of positions q and a tile of output channels, for all phases. Its inputs (the box with its halo) and
its weights lie in shared memory; a warp multiplies `m_tiles` x `n_tiles` tiles of 16 channels x 8 positions.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from crucible.gpus import H200, SHARED_RESERVED_BYTES, Gpu
from crucible.write.convolution.correlation import Correlation, Product, folded
from crucible.write.convolution.halo import STEP_UNITS, THREADS, UNITS, Boxes

WARPS = 8
STATIC_SHARED = 2048
"""Bytes that are kept free for a block's static shared memory: sums of its channels."""
MOST_SUMS = 128
"""Registers for products; two blocks a multiprocessor leave 128 in all, and 64 of them for these."""
SUMS_FOR_TWO = 64
MOST_PRODUCTS = 128
"""Taps, over all phases, that are written out one by one."""
MOST_CHANNELS = 64
"""Of a block."""
POSITIONS = (512, 256, 128, 64, 32)
BYTES_A_CLOCK = 18.3
"""Of a multiprocessor's share of the memory's 4.25 TB/s."""
LOAD_CLOCKS, SLICE_CLOCKS = 800, 500
"""Assumed: until a round of loads from memory has come, and until a slice of products has gone through the tile."""


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
    def pitch(self) -> int:
        """Words of a row of the tile of products, a channel's outputs in the order of the output: 8 beyond a multiple
        of 32, so that four rows of a fragment are written without bank conflicts. Without phases, what positions
        beyond the box leave has its place at the end."""
        outputs = math.prod(self.output_box)
        if math.prod(self.of.phases) == 1:
            outputs = self.columns * self.n_tiles * 8
        return outputs + (8 - outputs) % 32

    @property
    def tile_rows(self) -> int:
        """Of one slice of the products: 16 channels of each row of warps, or all where taps are folded into them."""
        return self.channels if self.of.folds else 16 * self.rows

    @property
    def tile_words(self) -> int:
        return self.tile_rows * self.pitch

    @property
    def turn_words(self) -> int:
        """Of a halo, and of the tile of products, which takes its place."""
        return max(self.halo_words, self.tile_words)

    @property
    def weight_turns(self) -> int:
        """Places for weights: two where they are loaded ahead as well."""
        return 2 if self.ahead and not self.is_resident else 1

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.weight_turns * self.weight_words + (2 if self.ahead else 1) * self.turn_words)

    @property
    def channel_tiles(self) -> int:
        return -(-self.of.out_channels // self.channels)

    def products_of(self, team: int) -> list[tuple[int, Product]]:
        """With their numbers."""
        return [(i, p) for i, p in enumerate(self.of.products) if p.phase in self.teams[team]]

    @cached_property
    def clocks(self) -> float:
        """Estimate of a multiprocessor's clocks for one item of one channel tile. It has not been held against a GPU
        as it is now; the one before, without latency and traffic, was two to four times too low on the H200, and right
        in order (`benchmarks/notes.md`). It assumes that tensor cores take 1.6 for each 16x8x8 product
        and shared memory 1 for each 128 bytes; the other factors count instructions by eye."""
        products = [len(self.products_of(team)) for team in range(len(self.teams))]
        shifts = [len({p.shift for _, p in self.products_of(team)}) for team in range(len(self.teams))]
        warps = self.rows * self.columns
        tensor_cores = 1.6 * WARPS * max(products) * self.m_tiles * self.n_tiles
        reads = sum(s * 2 * self.n_tiles + p * 4 * self.m_tiles for s, p in zip(shifts, products, strict=True)) * warps
        multiplied = self.steps * max(tensor_cores, reads)
        rounds = -(-self.steps // self.staged) * -(-math.prod(self.halo) // THREADS)
        staged = self.steps * STEP_UNITS * math.prod(self.halo) / 32 * 14 / 4 + rounds * LOAD_CLOCKS
        if not self.is_resident:
            staged += self.steps * self.step_weight_words / 32
        elements = math.prod(self.of.phases) * self.channels * math.prod(self.box)
        spread = math.prod(self.of.phases) > 1 and not self.is_paired
        finished = elements / 32 * (6 if spread else 3) + self.m_tiles * SLICE_CLOCKS
        if self.of.folds:
            finished += math.prod(self.output_box) * self.made.out_channels / 32 * 10
        if self.ahead:
            multiplied, staged = max(multiplied, staged), staged / 4  # which is left to do when they have come
        together = multiplied + max(staged + finished, self._traffic)
        if self.blocks == 1:
            return together
        return max(multiplied, staged + finished, self._traffic) * 0.75 + together * 0.25

    @property
    def _traffic(self) -> float:
        """Clocks for what an item reads (half of it from the L2 cache) and writes, in sectors of 32 bytes."""
        item = 4 if self.unit == 4 else 2
        written = sectors(self.output_box, [axis.outputs for axis in self.made.axes], item)
        written *= min(self.channels, self.made.out_channels)
        read = sectors(self.halo, [axis.extent for axis in self.of.axes], item) * self.of.in_channels
        weights = 0 if self.is_resident else self.steps * self.step_weight_words / 8
        return (written + (read + weights) / 2) * 32 / BYTES_A_CLOCK

    @property
    def total_clocks(self) -> float:
        """Of all items, on one multiprocessor."""
        return self.clocks * self.items * self.channel_tiles * self.of.groups


def sectors(box: Sequence[int], shape: Sequence[int], item: int) -> int:
    """That a box of one channel touches, each run of neighbours beginning anywhere."""
    run, runs = 1, math.prod(box)
    for n, whole in reversed(list(zip(box, shape, strict=True))):
        run, runs = run * n, runs // n
        if n != whole:
            break
    return runs * (run * item // 32 + 1)


def blocks_that_fit(shared_bytes: int, sums: int, gpu: Gpu) -> int:
    """Blocks of so much shared memory and so many registers for sums on a multiprocessor: up to two."""
    needed = shared_bytes + STATIC_SHARED
    if needed > gpu.shared_memory_per_block_bytes or sums > MOST_SUMS:
        return 0
    shares = 2 * (needed + SHARED_RESERVED_BYTES) <= gpu.shared_memory_per_sm_bytes
    return 2 if shares and sums <= SUMS_FOR_TWO else 1


@lru_cache(maxsize=256)
def tile(of: Correlation, unit: int, gpu: Gpu = H200) -> Tiling | None:
    """The tiling of least estimated time on a GPU; None where there is none: too many taps, or a halo too large."""
    return min(_tilings(of, unit, gpu), key=lambda each: each.total_clocks, default=None)


def best(of: Correlation, unit: int, count: int, gpu: Gpu = H200) -> list[Tiling]:
    """So many tilings of least estimated time, no two alike but for their boxes."""
    found: dict[tuple[object, ...], Tiling] = {}
    for each in sorted(_tilings(of, unit, gpu), key=lambda each: each.total_clocks):
        key = (
            each.channels,
            len(each.teams),
            each.rows,
            each.blocks,
            each.is_resident,
            each.ahead,
            math.prod(each.box) // 48,
        )
        found.setdefault(key, each)
    return list(found.values())[:count]


def _tilings(of: Correlation, unit: int, gpu: Gpu) -> Iterator[Tiling]:
    yield from _plain_tilings(of, unit, gpu)
    folds = folded(of)
    if folds is not None and folds.out_channels <= MOST_CHANNELS and of.out_channels < 16:
        whole = folds.axes[-1].steps
        for each in _plain_tilings(folds, unit, gpu, made_from=of):
            if each.box[-1] == whole and each.channels >= folds.out_channels:
                yield each


def _plain_tilings(of: Correlation, unit: int, gpu: Gpu, made_from: Correlation | None = None) -> Iterator[Tiling]:
    if not 0 < len(of.products) <= MOST_PRODUCTS:
        return
    steps = -(-of.in_channels // (unit * STEP_UNITS))
    for channels, positions, teams in itertools.product((16, 32, MOST_CHANNELS), POSITIONS, _all_teams(of)):
        if channels > 16 and channels >= 2 * of.out_channels:
            continue
        for box in _boxes(of, positions):
            for rows in (1, 2, 4):
                if rows * len(teams) <= WARPS and channels % (16 * rows) == 0:
                    wanted = Tiling(of, unit, steps, box, channels, teams, rows, made_from=made_from)
                    yield from _fitting(wanted, gpu)


def _fitting(wanted: Tiling, gpu: Gpu) -> Iterator[Tiling]:
    """With as many steps in shared memory as fit, of one block a multiprocessor and of two, with and without loading
    ahead."""
    for ahead in (False, True) if wanted.unit == UNITS["float32"] else (False,):
        most = 0
        for staged in sorted({wanted.steps, min(wanted.steps, 4), min(wanted.steps, 2), 1}, reverse=True):
            found = replace(wanted, staged=staged, ahead=ahead)
            blocks = blocks_that_fit(found.shared_bytes, found.sums, gpu)
            if blocks > most:
                most = blocks
                yield replace(found, blocks=blocks)


def _all_teams(of: Correlation) -> list[tuple[tuple[int, ...], ...]]:
    """Phases dealt to 1, 2, 4 or 8 teams, one by one or in pairs that alternate in the last dim: those with most taps
    first, each to the team with fewest."""
    phases = range(math.prod(of.phases))
    single = [(phase,) for phase in phases]
    pairs = [(phase, phase + 1) for phase in phases if phase % 2 == 0] if of.phases[-1] == 2 else []
    dealt = [_dealt(of, units, count) for units in (single, pairs) for count in (1, 2, 4, 8) if count <= len(units)]
    return list(dict.fromkeys(dealt))


def _dealt(of: Correlation, units: Sequence[tuple[int, ...]], count: int) -> tuple[tuple[int, ...], ...]:
    phases = Counter(product.phase for product in of.products)
    taps = {unit: sum(phases[phase] for phase in unit) for unit in units}
    teams: list[list[tuple[int, ...]]] = [[] for _ in range(count)]
    for unit in sorted(units, key=lambda unit: -taps[unit]):
        min(teams, key=lambda team: (sum(map(taps.__getitem__, team)), len(team))).append(unit)
    return tuple(tuple(sorted(itertools.chain(*team))) for team in teams)


def _boxes(of: Correlation, positions: int) -> Iterator[tuple[int, ...]]:
    """Boxes of about so many positions: as much of the last dim as fits, then of those before it."""
    steps = [axis.steps for axis in of.axes]
    last = steps[-1]
    widths = {min(last, positions)} | {w for w in (8, 16, 32, 64, 128) if w < min(last, positions)}
    for width in sorted(widths):
        yield from ((*outer, width) for outer in _outer(steps[:-1], positions // width))


def _outer(steps: Sequence[int], positions: int) -> Iterator[tuple[int, ...]]:
    if not steps:
        yield ()
        return
    if len(steps) == 1:
        yield (max(1, min(steps[0], positions)),)
        return
    for depth in (1, 2, 4, 8):
        if depth <= min(steps[0], max(positions, 1)):
            yield (depth, max(1, min(steps[1], positions // depth)))
