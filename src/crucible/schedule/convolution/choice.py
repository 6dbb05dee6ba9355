"""Which division the kernel of a convolution takes that multiplies."""

from __future__ import annotations

import math

from crucible.algebra.convolution.fused import Convolution
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.schedule import cost
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.questions import Multiplying, answered
from crucible.schedule.convolution.tile_choice import tile
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.divisions import for_warpgroups
from crucible.schedule.convolution.warpgroup.streams import Streams


def chosen(conv: Convolution, gpu: Gpu) -> Tiling | None:
    """The division that was measured as fastest, or else that of least estimated time, among warps or warpgroups; None
    where there is none."""
    question = asked(conv)
    measured: Tiling | None = answered(gpu, question)
    if measured is not None:
        return measured
    pool, spread = conv.pool.sizes if conv.pool else (), conv.spread.sizes if conv.spread else ()
    tensors, slots, unit = max(1, question.tensors), conv.chain_slots, UNITS[conv.source.dtype]
    warpgroups = for_warpgroups(conv, gpu)
    if conv.crossings:
        return warpgroups
    warps = tile(conv.correlation, unit, gpu, pool, spread, tensors=tensors, chain_slots=slots)
    if warps is None or warpgroups is None:
        return warps or warpgroups
    against = cost.tiles_against(warps.machine, is_exact=conv.keeps_float32, streams=isinstance(warpgroups, Streams))
    return warps if clocks(question, warpgroups) > against * clocks(question, warps) else warpgroups


def least_clocks(conv: Convolution, gpu: Gpu) -> float | None:
    """The estimate for it as it is chosen, of all multiprocessors; None where there is no division."""
    way = chosen(conv, gpu)
    return None if way is None else clocks(asked(conv), way)


def clocks(question: Multiplying, way: Tiling) -> float:
    """The estimate of a division, of all multiprocessors together. Warps' are told the chain, warpgroups' know it."""
    if type(way) is not Tiling:
        return float(way.total_clocks)
    conv = question.conv
    found = way.total_clocks_with(question.tensors, products=conv.products, chain_slots=conv.chain_slots)
    phased = math.prod(conv.correlation.phases) > 1
    halves = ITEM_BYTES[conv.source.dtype] < ITEM_BYTES["float32"]
    return found * cost.tiles_times(way.machine, is_exact=conv.keeps_float32, phased=phased, halves=halves)


def asked(conv: Convolution) -> Multiplying:
    """With the tensors of the output's size that the chain reads and writes."""
    return Multiplying(conv, len(conv.loaded) + sum(not each.sums for each in conv.results))
