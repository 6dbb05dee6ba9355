"""The kinds of divisions among warpgroups: which convolutions each serves, and its best ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crucible.algebra.convolution.fused import Convolution
from crucible.gpus import Gpu
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.phases import (
    PhaseWalks,
    best_phase_walks,
    fetched_by,
    issued_by,
    phase_division,
)
from crucible.schedule.convolution.warpgroup.pooled import PooledWalks, best_pooled_walks, pool_division, work_of
from crucible.schedule.convolution.warpgroup.scatter import Scatter, best_scatters, scattered
from crucible.schedule.convolution.warpgroup.stream_choice import best_streams, moved_by, stream_division
from crucible.schedule.convolution.warpgroup.streams import Streams
from crucible.schedule.convolution.warpgroup.walk_choice import best_divisions_of, division
from crucible.schedule.convolution.warpgroup.walks import Walks
from crucible.schedule.machine import machine_of


@dataclass(frozen=True)
class Kind:
    """One of them."""

    divisions: type[Tiling]
    chosen: Callable[[Convolution, Gpu], Tiling | None]
    """The one of least estimated time; None where the kind does not serve a convolution."""
    several: Callable[[Convolution, int, Gpu], list[Any]]
    """So many of least estimated time, for a convolution that it serves."""


def for_warpgroups(conv: Convolution, gpu: Gpu) -> Tiling | None:
    """The division of least estimated time among all kinds; None where none serves a convolution."""
    every = (kind.chosen(conv, gpu) for kind in KINDS if conv.front is None)
    return min(filter(None, every), key=lambda each: each.total_clocks, default=None)


def best_for_warpgroups(conv: Convolution, count: int, gpu: Gpu) -> list[Tiling]:
    """So many of each kind that serves a convolution."""
    serving = [kind for kind in KINDS if conv.front is None and kind.chosen(conv, gpu)]
    return [each for kind in serving for each in kind.several(conv, count, gpu)]


def _phase_walks(conv: Convolution, count: int, gpu: Gpu) -> list[PhaseWalks]:
    written = sum(not each.sums for each in conv.results)
    return best_phase_walks(
        conv.correlation,
        UNITS[conv.source.dtype],
        count,
        gpu,
        written,
        fetched_by(conv),
        issued_by(conv, machine_of(gpu)),
    )


def _pooled_walks(conv: Convolution, count: int, gpu: Gpu) -> list[PooledWalks]:
    assert conv.pool is not None
    kept, tensors = work_of(conv, conv.pool, machine_of(gpu))
    return best_pooled_walks(conv.correlation, UNITS[conv.source.dtype], conv.pool.sizes, count, gpu, kept, tensors)


def _scatters(conv: Convolution, count: int, gpu: Gpu) -> list[Scatter]:
    return best_scatters(conv.correlation, count, gpu, exact=conv.keeps_float32)


def _streams(conv: Convolution, count: int, gpu: Gpu) -> list[Streams]:
    exact = conv.keeps_float32
    return best_streams(conv.correlation, UNITS[conv.source.dtype], count, gpu, moved_by(conv), exact=exact)


KINDS = (
    Kind(PooledWalks, pool_division, _pooled_walks),
    Kind(PhaseWalks, phase_division, _phase_walks),
    Kind(Scatter, scattered, _scatters),
    Kind(Streams, stream_division, _streams),
    Kind(Walks, division, best_divisions_of),
)
"""Divisions that are also another kind's stand before that."""
