"""Which division the kernel of a convolution takes that multiplies."""

from __future__ import annotations

from crucible.gpus import Gpu
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import UNITS
from crucible.write.convolution.questions import Multiplying, answered
from crucible.write.convolution.tile_choice import tile
from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.warpgroup.kinds import for_warpgroups


def chosen(conv: Convolution, gpu: Gpu) -> Tiling | None:
    """The division that was measured as fastest, or else that of least estimated time, among warps or warpgroups; None
    where there is none."""
    measured: Tiling | None = answered(gpu, Multiplying(conv, _tensors(conv)))
    if measured is not None:
        return measured
    pool, spread = conv.pool.sizes if conv.pool else (), conv.spread.sizes if conv.spread else ()
    tensors, slots = _tensors(conv), conv.chain_slots
    unit = UNITS[conv.source.dtype]
    warps = tile(conv.correlation, unit, gpu, pool, spread, tensors=max(1, tensors), chain_slots=slots)
    warpgroups = for_warpgroups(conv, gpu)
    if warps is None or warpgroups is None:
        return warps or warpgroups
    clocks = warps.total_clocks_with(tensors, products=conv.products, chain_slots=slots)
    return warps if warpgroups.total_clocks > clocks else warpgroups


def least_clocks(conv: Convolution, gpu: Gpu) -> float | None:
    """The estimate for it as it is chosen, of all multiprocessors; None where there is no division."""
    way = chosen(conv, gpu)
    if type(way) is Tiling:
        return way.total_clocks_with(_tensors(conv), products=conv.products, chain_slots=conv.chain_slots)
    return None if way is None else float(way.total_clocks)


def _tensors(conv: Convolution) -> int:
    """Of the output's size, that the chain reads and writes."""
    return len(conv.loaded) + sum(not each.sums for each in conv.results)
