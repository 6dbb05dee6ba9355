"""What estimates count of memory: sectors and lines that boxes touch; and those of least estimated time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TypeVar

Division = TypeVar("Division")


def lines(width: int, item: int) -> float:
    """Wavefronts of a warp's load of neighbours, in rows of such a width: the lines of 128 bytes that they lie in."""
    return 32 / width + item / 4


def cut(box: Sequence[int], shape: Sequence[int]) -> float:
    """Lines of 128 bytes that each 32 words of a box lie in which is stored: several where its runs are short."""
    return max(1, 32 / _runs(box, shape)[1])


def read_sectors(box: Sequence[int], shape: Sequence[int], item: int) -> float:
    """That a box of one channel touches on average, each run of neighbours beginning anywhere."""
    runs, run, _ = _runs(box, shape)
    return runs * (run + 32 // item - 1) * item / 32


def sectors(box: Sequence[int], shape: Sequence[int], item: int) -> int:
    """The most that a box of one channel touches."""
    runs, run, _ = _runs(box, shape)
    return runs * (run * item // 32 + 1)


def written_sectors(box: Sequence[int], shape: Sequence[int], item: int, partly: float) -> float:
    """The same of boxes side by side from the first element on, those that a run fills partly as so many each."""
    runs, run, step = _runs(box, shape)
    sector = 32 // item
    begins = range(0, sector, math.gcd(step, sector))
    return runs * sum(_written(begin, begin + run, sector, partly) for begin in begins) / len(begins)


def _written(begin: int, end: int, sector: int, partly: float) -> float:
    touched = -(-end // sector) - begin // sector
    filled_partly = {place // sector for place in (begin, end) if place % sector}
    return touched + (partly - 1) * len(filled_partly)


def _runs(box: Sequence[int], shape: Sequence[int]) -> tuple[int, int, int]:
    """How many runs of neighbours a box has, their elements, and what divides the distances between their begins."""
    run, runs = 1, math.prod(box)
    for n, whole in reversed(list(zip(box, shape, strict=True))):
        run, runs = run * n, runs // n
        if n != whole:
            return runs, run, math.gcd(run, run // n * whole)
    return runs, run, run


def least(
    found: Iterable[Division],
    count: int,
    alike: Callable[[Division], object],
    clocks: Callable[[Division], float] = attrgetter("total_clocks"),
) -> list[Division]:
    """So many of least estimated time, of those that are `alike` in something the fastest alone."""
    kept: dict[object, Division] = {}
    for each in sorted(found, key=clocks):
        kept.setdefault(alike(each), each)
    return list(kept.values())[:count]
