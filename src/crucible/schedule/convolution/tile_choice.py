"""Which tilings a correlation may have, and which is estimated best."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from crucible.algebra.convolution.correlation import Correlation, folded
from crucible.gpus import H200, Gpu
from crucible.schedule.convolution.estimate import least
from crucible.schedule.convolution.halo import STEP_UNITS, UNITS
from crucible.schedule.convolution.tiling import MOST_PRODUCTS, WARPS, Tiling, blocks_that_fit
from crucible.schedule.machine import machine_of

MOST_CHANNELS = 64
"""Of a block."""
POSITIONS = (512, 256, 128, 64, 32)


@lru_cache(maxsize=256)
def tile(
    of: Correlation,
    unit: int,
    gpu: Gpu = H200,
    pool: tuple[int, ...] = (),
    spread: tuple[int, ...] = (),
    *,
    tensors: int = 1,
    chain_slots: int = 0,
) -> Tiling | None:
    """The tiling of least estimated time on a GPU, `tensors` and `chain_slots` as in `Tiling.clocks_with`; None where
    there is none: too many taps, or a halo too large. Boxes are made of whole windows of `pool`; inputs that are
    `spread` over windows when they are staged are not loaded ahead."""
    found = _tilings(of, unit, gpu, pool, spread)
    return min(found, key=lambda each: each.total_clocks_with(tensors, chain_slots=chain_slots), default=None)


def best(
    of: Correlation,
    unit: int,
    count: int,
    gpu: Gpu = H200,
    pool: tuple[int, ...] = (),
    spread: tuple[int, ...] = (),
    *,
    tensors: int = 1,
) -> list[Tiling]:
    """So many tilings of least estimated time, no two alike but for their boxes."""

    def alike(each: Tiling) -> object:
        size = math.prod(each.box) // 48
        return each.channels, len(each.teams), each.rows, each.blocks, each.is_resident, each.ahead, size

    return least(_tilings(of, unit, gpu, pool, spread), count, alike, lambda each: each.total_clocks_with(tensors))


def _tilings(of: Correlation, unit: int, gpu: Gpu, pool: tuple[int, ...], spread: tuple[int, ...]) -> Iterator[Tiling]:
    for plain in _plain_tilings(of, unit, gpu, pool, spread):
        yield from _fitting(plain, gpu)
    folds = None if pool else folded(of)
    if folds is not None and folds.out_channels <= MOST_CHANNELS and of.out_channels < 16:
        whole = folds.axes[-1].steps
        for plain in _plain_tilings(folds, unit, gpu, (), spread):
            if plain.box[-1] == whole and plain.channels >= folds.out_channels:
                yield from _fitting(replace(plain, made_from=of), gpu)


def _plain_tilings(
    of: Correlation, unit: int, gpu: Gpu, pool: tuple[int, ...], spread: tuple[int, ...]
) -> Iterator[Tiling]:
    """With all steps staged, whether that fits or not."""
    if not 0 < len(of.products) <= MOST_PRODUCTS:
        return
    steps, machine = -(-of.in_channels // (unit * STEP_UNITS)), machine_of(gpu)
    for channels, positions, teams in itertools.product((16, 32, MOST_CHANNELS), POSITIONS, _all_teams(of)):
        if channels > 16 and channels >= 2 * of.out_channels:
            continue
        for box in dict.fromkeys(_of_windows(of, box, pool) for box in _boxes(of, positions)):
            for rows in (1, 2, 4):
                if rows * len(teams) <= WARPS and channels % (16 * rows) == 0:
                    yield Tiling(of, unit, steps, box, channels, teams, rows, pool=pool, spread=spread, sms=gpu.sms,
                                 machine=machine)  # fmt: skip


def _fitting(wanted: Tiling, gpu: Gpu) -> Iterator[Tiling]:
    """With as many steps in shared memory as fit, of one block a multiprocessor and of two, with and without loading
    ahead."""
    for ahead in (False, True) if wanted.unit == UNITS["float32"] and not wanted.spread else (False,):
        most = 0
        for staged in sorted({wanted.steps, min(wanted.steps, 4), min(wanted.steps, 2), 1}, reverse=True):
            found = replace(wanted, staged=staged, ahead=ahead)
            blocks = blocks_that_fit(found.shared_bytes, found.sums, gpu)
            if blocks > most:
                most = blocks
                yield replace(found, blocks=blocks)


def _all_teams(of: Correlation) -> list[tuple[tuple[int, ...], ...]]:
    """Phases dealt to 1, 2, 4 or 8 teams, one by one or in pairs that alternate in the last dim: those with most taps
    first, each to the team with fewest. Of the two warps that share a tensor core, every fourth, one is of the first
    half of the teams and one of the second, so that the second half is turned: of P38's 12, 6, 6 and 3 products each
    pair then has 15 or 12, not 18 or 9."""
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
    teams.sort(key=lambda team: -sum(map(taps.__getitem__, team)))
    found = [tuple(sorted(itertools.chain(*team))) for team in teams]
    return (*found[: count // 2], *found[count // 2 :][::-1])


def _boxes(of: Correlation, positions: int) -> Iterator[tuple[int, ...]]:
    """Boxes of about so many positions: as much of the last dim as fits, then of those before it."""
    steps = [axis.steps for axis in of.axes]
    last = steps[-1]
    widths = {min(last, positions)} | {w for w in (8, 16, 32, 64, 128) if w < min(last, positions)}
    for width in sorted(widths):
        yield from ((*outer, width) for outer in _outer(steps[:-1], positions // width))


def _of_windows(of: Correlation, box: tuple[int, ...], pool: tuple[int, ...]) -> tuple[int, ...]:
    """The box, cut down to whole windows along dims that it does not cover."""
    if not pool:
        return box
    least = [size // math.gcd(size, axis.out_stride) for size, axis in zip(pool, of.axes, strict=True)]
    whole = [axis.steps for axis in of.axes]
    each = zip(box, least, whole, strict=True)
    return tuple(min(max(n // few, 1) * few, all_) if n < all_ else n for n, few, all_ in each)


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
