"""A convolution as kernels: one puts the weight in order, one does all the rest."""

from __future__ import annotations

from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.simplify import simplify
from crucible.errors import MisuseError
from crucible.gpus import H200, Gpu
from crucible.kinds.convolution.packing import pack
from crucible.kinds.convolution.phases.lower import build_phases
from crucible.kinds.convolution.pooled.lower import build_pooled
from crucible.kinds.convolution.scatter.lower import build_scatter
from crucible.kinds.convolution.streams.lower import build_streams
from crucible.kinds.convolution.walks.lower import build_walks
from crucible.kinds.convolution.warps.lower import build_warps
from crucible.print.cuda import printed
from crucible.print.written import Lowered
from crucible.schedule.convolution.choice import chosen
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.phases import PhaseWalks
from crucible.schedule.convolution.warpgroup.pooled import PooledWalks
from crucible.schedule.convolution.warpgroup.scatter import Scatter
from crucible.schedule.convolution.warpgroup.streams import Streams
from crucible.schedule.convolution.warpgroup.walks import Walks


def lower_convolution(conv: Convolution, tiling: Tiling | None = None, gpu: Gpu = H200) -> Lowered:
    """The kernels, for a GPU; divided as estimated best, where no tiling is given. Raises MisuseError where there is
    none."""
    tiling = tiling or chosen(conv, gpu)
    if tiling is None:
        raise MisuseError(f"{conv.name}: no tile of it fits in shared memory, or it has too many taps")
    if conv.front is not None and type(tiling) is not Tiling:
        raise MisuseError(f"{conv.name}: a chain in front is for warps, and {type(tiling).__name__} is not")
    if conv.crossings and not isinstance(tiling, Streams):
        raise MisuseError(f"{conv.name}: streams reduce over channels, and {type(tiling).__name__} do not")
    simple = simplify(*conv.exprs).exprs
    results = tuple(replace(each, expr=expr) for each, expr in zip(conv.results, simple, strict=False))
    rest = simple[len(results) :]
    reductions = tuple(replace(each, expr=expr) for each, expr in zip(conv.reductions, rest, strict=False))
    rest = rest[len(reductions) :]
    crossings = tuple(replace(each, expr=expr) for each, expr in zip(conv.crossings, rest, strict=True))
    conv = replace(conv, results=results, reductions=reductions, crossings=crossings)
    if isinstance(tiling, PooledWalks):  # puts the weight in order itself
        return build_pooled(conv, tiling, gpu).lowered()
    made = _multiplied(conv, tiling, gpu)
    return replace(made, kernels=(printed(pack(conv, tiling, made.buffers[0])), *made.kernels))


def _multiplied(conv: Convolution, tiling: Tiling, gpu: Gpu) -> Lowered:
    """The kernel that multiplies."""
    if type(tiling) is Tiling:
        return build_warps(conv, tiling, gpu).lowered()
    if isinstance(tiling, PhaseWalks):
        return build_phases(conv, tiling, gpu).lowered()
    if isinstance(tiling, Scatter):
        return build_scatter(conv, tiling, gpu).lowered()
    if isinstance(tiling, Streams):
        return build_streams(conv, tiling, gpu).lowered()
    assert isinstance(tiling, Walks)
    return build_walks(conv, tiling, gpu).lowered()
