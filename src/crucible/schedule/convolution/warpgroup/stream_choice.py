"""Which convolutions are divided as streams, how they may be, and which way is estimated best."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.fused import Convolution
from crucible.gpus import Gpu
from crucible.kernel.places import CORE_ROWS
from crucible.schedule.convolution.estimate import least
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.row_parts import adds_up_beside, crosses_alone
from crucible.schedule.convolution.tiling import MOST_PRODUCTS
from crucible.schedule.convolution.warpgroup.streams import GROUPS, TILE, Streams, in_eights
from crucible.schedule.convolution.warpgroup.walks import lengths
from crucible.schedule.machine import machine_of

EIGHTS = (8, 1)
"""Rows of a tile."""
MOST_COLUMNS, MOST_SUMS, FEWER_SUMS = 128, 128, 96
"""Of an instruction (nvcc holds one to the 128 registers that 512 threads have, whatever `setmaxnreg` adds: 256 columns
are refused, C7602); registers of a thread, and those beside a chain that reads tensors or adds up (with 128 it spilled
up to 376 bytes)."""
MOST_OF_TILES, OF_A_TILE = 192, 8
"""Registers of a thread for its tiles: each has sums, and beside them a place and descriptors, counted as so many. By
ptxas of nvcc 13.0 two of 11 divisions of three input gradients within this spilled, 80 and 84 bytes (12 tiles of 8
rows; the rest 4 or none), and all 18 beyond it, 16 to 836 (level 2's task 25: 16 tiles)."""
MOST_KEPT, MOST_SCALED, OF_A_TILE_KEPT = 144, 176, 16
"""The same where float32 is kept exact, with the sums of a stage beside those of tiles: by ptxas of nvcc 13.0 3 of 124
divisions of six convolutions and gradients within this spill, 8 to 20 bytes, and 23 of 52 beyond it 4 to 220. Where
stages have scales, and nvcc gives a thread 168: of the kernels of 22 tasks of level 2 two, of 100, spill 364 and 480
bytes (four phases), four others 4 to 40."""
MOST_CROSSED = 152
"""Registers of a thread for sums, what reductions over channels take beside them, and places in tensors (with 160, of
16 tiles, it spilled 484 bytes; within this 2 kernels of 24 did, 44 at most, of two reductions)."""
LEAST_SCALED = 9
"""Channels, from which on words that keep float32 are fp16: of fewer half of a stage of 16 would be nothing."""
MANY_TAPS = 16
"""Of a plane, from which on they are tried in parts: with 25 a slot is left with 32 channels."""
MOST_FLAT = 512
"""Positions of a run."""
MOST_SLOTS, MOST_HIGH = 6, 16
"""Stages ahead; tiles of a box one under the other."""


def stream_division(conv: Convolution, gpu: Gpu) -> Streams | None:
    """How warpgroups would share a convolution; None where they do not serve it: GPUs without them, groups, pools,
    reductions of rows other than sums beside a result; several phases where numbers are rounded, windows where float32
    is kept exact."""
    exact = conv.keeps_float32
    if not adds_up_beside(conv) or conv.pool or not crosses_alone(conv) or (exact and conv.spread):
        return None
    return stream(conv.correlation, UNITS[conv.source.dtype], gpu, moved_by(conv), exact=exact)


@dataclass(frozen=True)
class Moved:
    """What of a chain the division asks for."""

    tensors: int = 1
    """Of the output's size, that it reads and writes."""
    sums: int = 0
    """Of channels, over all images or of each."""
    spread: tuple[int, ...] = ()
    """Windows that it reads."""
    loads: int = 0
    """Of these tensors, those that it reads."""
    slots: int = 0
    """Instructions of functions for an output."""
    crossings: int = 0
    """Reductions over channels."""


def moved_by(conv: Convolution) -> Moved:
    sums, loads = sum(each.sums for each in conv.results), len(conv.loaded)
    spread = conv.spread.sizes if conv.spread else ()
    tensors = loads + len(conv.results) - sums
    return Moved(tensors, sums + len(conv.reductions), spread, loads, conv.chain_slots, len(conv.crossings))


def _serves(of: Correlation, gpu: Gpu, *, exact: bool) -> bool:
    return (
        gpu.compute_capability == (9, 0)
        and of.is_dense
        and (math.prod(of.phases) == 1 or (exact and all(all(axis.phases) for axis in of.axes)))
        and not of.folds
        and 0 < len(of.products) <= MOST_PRODUCTS
    )


@lru_cache(maxsize=256)
def stream(
    of: Correlation, unit: int, gpu: Gpu, moved: Moved = Moved(), *, exact: bool = False
) -> Streams | None:  # fmt: skip
    """The division of least estimated time; None where there is none."""
    return min(_streams(of, unit, gpu, moved, exact), key=lambda each: each.total_clocks, default=None)


def best_streams(
    of: Correlation, unit: int, count: int, gpu: Gpu, moved: Moved = Moved(), *, exact: bool = False
) -> list[Streams]:
    """So many of least estimated time, each with other boxes, channels or ways to walk."""
    found = _streams(of, unit, gpu, moved, exact)
    return least(found, count, lambda each: (each.box, each.channels, each.once, each.fetches))


def _streams(of: Correlation, unit: int, gpu: Gpu, moved: Moved, exact: bool) -> Iterator[Streams]:
    if not _serves(of, gpu, exact=exact):
        return
    if exact and of.in_channels >= LEAST_SCALED:
        unit = UNITS["float16"]
    most = MOST_SUMS if moved.tensors <= 1 and not moved.loads + moved.sums else FEWER_SUMS
    ways = itertools.product(_channels(of), (True, False), lengths(of), _taps_at_once(of, exact=exact))
    for channels, once, length, at_once in ways:
        if once and (len(of.axes) < 3 or length == 1 or math.prod(of.phases) > 1 or at_once):
            continue
        for box, tile_rows, flat in _boxes(of, exact=exact and not moved.spread):
            wanted = Streams(of, unit, 1, box, channels, ((0,),), 1, spread=moved.spread, tile_rows=tile_rows,
                             walk=length, once=once, flat=flat, at_once=at_once, exact=exact,
                             tensors=moved.tensors, sums=moved.sums, loads=moved.loads, chain_slots=moved.slots,
                             crossings=moved.crossings, sms=gpu.sms, machine=machine_of(gpu))  # fmt: skip
            if moved.spread and not wanted.begins_at_windows:
                continue
            if not wanted.holds_stages:
                continue
            columns = wanted.live * wanted.beside * channels
            if columns <= MOST_COLUMNS and wanted.tiles * wanted.held <= most and _holds_tiles(wanted):
                yield from _with_slots(wanted, gpu)


def _holds_tiles(wanted: Streams) -> bool:
    """Whether what tiles take fits in registers; and with reductions over channels two of a tile for each, and where
    its positions are, in each tensor."""
    crossed = 2 * wanted.crossings + max(1, 4 * wanted.tensors)
    if wanted.crossings and wanted.tiles * (wanted.held + crossed * wanted.beside) + wanted.fresh > MOST_CROSSED:
        return False
    if wanted.exact:
        most = MOST_SCALED if wanted.scaled else MOST_KEPT
        return wanted.tiles * (wanted.held + OF_A_TILE_KEPT) + wanted.fresh <= most
    return wanted.tiles * (wanted.held + OF_A_TILE) <= MOST_OF_TILES


def _channels(of: Correlation) -> list[int]:
    """Of a block: all, or in equal parts."""
    return sorted({-(-of.out_channels // (8 * parts)) * 8 for parts in (1, 2, 3, 4, 8)})


def _taps_at_once(of: Correlation, *, exact: bool) -> list[int]:
    """All of a plane, or in two or three parts."""
    taps = len({product.shift[-2:] for product in of.products})
    if not exact or taps < MANY_TAPS or math.prod(of.phases) > 1:
        return [0]
    return [0, -(-taps // 2), -(-taps // 3)]


def _boxes(of: Correlation, *, exact: bool) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Boxes of whole tiles, as wide as the outputs or in pieces, as many for each warpgroup; the rows of a tile; and of
    runs over rows, which were not measured where numbers are rounded, their positions."""
    steps = [axis.steps for axis in of.axes]
    for rows in EIGHTS if len(steps) > 1 else (1,):
        size = TILE // rows
        whole = -(-steps[-1] // size)
        most = max(GROUPS, -(-steps[-2] // rows)) if len(steps) > 1 else 1
        for wide in sorted({whole, whole + whole % GROUPS, *(n for n in (1, 2, 4, 8) if n < whole)}):
            for high in range(1, min(most, MOST_HIGH) + 1):
                if wide * high % GROUPS == 0:
                    yield (1, high * rows, wide * size)[-len(steps) :], rows, 0
    if exact and len(steps) > 1 and all(axis.in_stride == 1 for axis in of.axes[-2:]):
        pitch = in_eights(steps[-1] + len(of.axes[-1].shifts) - 1)
        for flat in range(GROUPS * TILE, MOST_FLAT + 1, GROUPS * TILE):
            yield (1, -(-(pitch - CORE_ROWS + flat) // pitch), steps[-1])[-len(steps) :], 1, flat


def _with_slots(wanted: Streams, gpu: Gpu) -> Iterator[Streams]:
    """With as many stages in shared memory as fit."""
    found = [replace(wanted, slots=slots) for slots in range(MOST_SLOTS, 1, -1)]
    fits = [each for each in found if each.shared_bytes <= gpu.shared_memory_per_block_bytes]
    for each in fits[:1]:
        yield from ([replace(each, fetches=True)] if each.is_run and not each.spread else [])
        yield each
