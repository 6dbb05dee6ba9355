"""Which divisions of the gradient of a weight warpgroups may take, and which is estimated best."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.windows import Spread
from crucible.algebra.program import Operand, contiguous
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.schedule.convolution.estimate import least
from crucible.schedule.convolution.warpgroup.walks import lengths
from crucible.schedule.convolution.warpgroup.weight_moves import Moves, moved
from crucible.schedule.convolution.warpgroup.weight_shape import COLUMNS, STAGERS, STEP_WORDS, taps_of
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks
from crucible.schedule.convolution.warpgroup.weight_windows import Windowed, windowed
from crucible.schedule.machine import machine_of

MOST_COLUMNS, MOST_SUMS = 256, 112
"""Of an instruction; of a thread."""
MOST_BYTES = 195 * 1024
"""Of shared memory: the 60 KiB that are left then hold the lines of the gradient that two warpgroups ask for at once,
some three for each row of each of 64 channels."""
RAW = 3
"""Planes of input as they lie in memory: one that is read, the others on their way."""


def serves(of: Correlation, gpu: Gpu) -> bool:
    """Whether a GPU has the instructions, and the correlation one phase."""
    axes = of.axes
    return (
        gpu.compute_capability == (9, 0)
        and of.is_dense
        and math.prod(of.phases) == 1
        and not of.folds
        and (len(axes) < 3 or len(axes[0].shifts) >= axes[0].in_stride)
    )


def weight_division(
    of: Correlation, source: Operand, grad: Operand, gpu: Gpu, spread: Spread | None = None
) -> WeightWalks | None:
    """How warpgroups would share the gradient of the weight; None where they do not serve it: GPUs without them,
    tensors that are not contiguous, groups, rows of an odd number of half types, sums that registers do not hold."""
    sizes = spread.sizes if spread else (1,) * len(of.axes)
    read = (*of.in_shape[:2], *(n // size for n, size in zip(of.in_shape[2:], sizes, strict=True)))
    if (source.strides, grad.strides) != (contiguous(read), contiguous(of.out_shape)):
        return None
    return weight_walk(of, ITEM_BYTES[source.dtype], gpu, spread)


@lru_cache(maxsize=256)
def weight_walk(of: Correlation, item: int, gpu: Gpu, spread: Spread | None = None) -> WeightWalks | None:
    """The division of least estimated time, of elements of so many bytes; None where there is none. What is read may
    be spread over windows."""
    return min(_walks(of, item, gpu, spread), key=lambda each: each.total_clocks, default=None)


def best_weight_walks(
    of: Correlation, item: int, count: int, gpu: Gpu, spread: Spread | None = None
) -> list[WeightWalks]:
    """So many of least estimated time, no two alike but for how far they walk and how they group taps."""
    return least(
        _walks(of, item, gpu, spread),
        count,
        lambda each: (each.moves, each.rows, each.raw, each.stagers, each.vector, each.channel_tiles, each.outer),
    )


def _walks(of: Correlation, item: int, gpu: Gpu, spread: Spread | None = None) -> Iterator[WeightWalks]:
    if not serves(of, gpu):
        return
    if spread:
        for each, moves, windows in windowed(of, spread):
            yield from _walks_of(each, moves, windows, item, gpu)
        return
    yield from _walks_of(of, None, None, item, gpu)
    for each, moves in moved(of):
        yield from _walks_of(each, moves, None, item, gpu)


def _walks_of(
    of: Correlation, moves: Moves | None, windows: Windowed | None, item: int, gpu: Gpu
) -> Iterator[WeightWalks]:
    """None where taps are not equally spaced, as a weight's own or as moves make them: at stride 5 those of -1, 1 and
    3 are 1, 3 and 4."""
    if not all(taps_of(axis) for axis in of.axes):
        return
    last = of.axes[-1]
    vectors = [n for n in (4, 2, 1) if last.outputs * item % (4 * n) == 0][:2]
    if windows:  # with pieces of 16 words nvcc 13.0 spilled
        vectors = [n for n in vectors if n < 4]
    most = 4 if windows else 16 // item  # with more half types of windows at once it spilled as well
    loads = next(n for n in (most, 8 // item, 4 // item, 1) if last.extent % n == 0)
    tiles = [n for n in (1, 2, 3, 4, 6, 8) if n <= -(-of.in_channels // COLUMNS)]
    for vector, length, together, channels in itertools.product(vectors, lengths(of), (True, False), tiles):
        first = WeightWalks(of, item, 1, 0, length, vector, loads, together, channels, 1, moves=moves, windows=windows,
                            sms=gpu.sms, machine=machine_of(gpu))  # fmt: skip
        is_whole = first.taps[1].spacing == 1 and len(first.taps[1].numbers) > 1
        if (together and not is_whole) or first.columns > MOST_COLUMNS or first.piece_registers > STAGERS[1][1]:
            continue
        for outer in {-(-first.all_outer // n) for n in range(1, first.all_outer + 1)}:
            each = replace(first, outer=outer)
            if each.sums <= MOST_SUMS and each.parts <= gpu.sms:
                yield from _planes(each, gpu)


def _planes(first: WeightWalks, gpu: Gpu) -> Iterator[WeightWalks]:
    """Of some rows that the warpgroups share evenly, as wide as they are or in pieces; with as many in shared memory
    as there is room for, and one more at least than are in use."""
    _, rows, columns = first.outputs
    parts = -(-columns // (STEP_WORDS * first.per_word))
    width = -(-columns // (parts * first.piece)) * first.piece
    least = max(1, min(rows, STEP_WORDS * first.per_word // width))
    for count in sorted({least * min(-(-rows // least), n) for n in (1, 2, 4, 6, 8)}):
        for raw in (0, RAW):
            for slots in range(first.span + 3 * first.strides[0], first.span, -1):
                found = replace(first, rows=count, width=width, slots=slots, raw=raw)
                most = min(MOST_BYTES, gpu.shared_memory_per_block_bytes)
                fits = found.half_units < 1 << 14 and found.shared_bytes <= most
                if fits and (not raw or found.in_bulk):
                    yield found
                    more = replace(found, stagers=2)
                    if found.each_once and more.fits and found.piece_registers <= STAGERS[2][1]:
                        yield more
                    break
