"""Estimated clocks of a block's work, by what each part of a multiprocessor has to do, held against the H200.

`benchmarks/notes.md` compares it with what was measured; `tests/write/test_estimates.py` holds it there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

Division = TypeVar("Division")

GHZ = 1.8
"""Of a multiprocessor, as Nsight Compute saw it under these kernels."""
BYTES_A_CLOCK = 18.3
"""Of a multiprocessor's share of the memory's 4.25 TB/s."""
PRODUCT_CLOCKS = 1.6
"""Of the four tensor cores for each 16x8x8 product."""
ROUND_CLOCKS = 400
"""Until a round of loads, as many as a thread has on their way at once, has come, its addresses included."""
LOAD_CLOCKS = 800
"""Until what a warp of its own loads has come."""
IN_FLIGHT = 16
"""Loads of a thread that are on their way at once where it has as many to do."""
SLICE_CLOCKS = 2000
"""Of two barriers and of the first and the last accesses between them, while nothing is multiplied."""
PARTLY = 7.5
"""Sectors' time that one takes which a block writes partly: it is read, put together and written."""
BESIDE = 1.4
"""How much longer two blocks that share a multiprocessor take for what they wait for than if they never met."""
ALONE = 0.3
"""Of the time that a multiprocessor waits for memory when all do: about what its own ways to it take."""
SHARPNESS = 3
"""Of what is waited for the longest counts: the norm that puts times together which overlap."""


@dataclass(frozen=True)
class Work:
    """Of a block, in clocks of its multiprocessor."""

    tensor_cores: float
    fragments: float
    """Wavefronts of loads for tensor cores from shared memory, one a clock."""
    passed: float
    """All other wavefronts: of loads and stores to shared memory and to memory."""
    issued: float
    """To issue the instructions that go with these."""
    waited: float
    """In which no warp of the block can do anything."""
    traffic: float
    """Until memory and L2 have served what is read and written."""

    def clocks(self, blocks: int) -> float:
        """Where so many blocks share a multiprocessor: what is busiest, or what a block does one by one."""
        one_by_one = max(self.tensor_cores, self.fragments) + self.passed + self.issued + self.waited
        if blocks > 1:
            one_by_one *= BESIDE / blocks
        parts = (self.tensor_cores, 1.05 * (self.fragments + self.passed), self.issued, self.traffic, one_by_one)
        return math.pow(sum(math.pow(part, SHARPNESS) for part in parts), 1 / SHARPNESS)

    def total(self, items: int, blocks: int, sms: int) -> float:
        """Of so many multiprocessors together until the last of the items is done, each of which is such work: what
        all of them do together, or one block after another that has most of them and the multiprocessor to itself. (64
        channels, 3 x 3 x 3 taps with stride 2, 16 items: 0.108 ms on the H200, 0.03 divided further.)"""
        most = -(-items // (blocks * sms))
        alone = replace(self, traffic=ALONE * self.traffic)
        return max(items * self.clocks(blocks), sms * most * alone.clocks(1))


def traffic(sectors: float) -> float:
    """Clocks for so many sectors of 32 bytes."""
    return sectors * 32 / BYTES_A_CLOCK


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


def written_sectors(box: Sequence[int], shape: Sequence[int], item: int) -> float:
    """The same of boxes side by side from the first element on, with what those cost more that a run fills partly."""
    runs, run, step = _runs(box, shape)
    sector = 32 // item
    begins = range(0, sector, math.gcd(step, sector))
    return runs * sum(_written(begin, begin + run, sector) for begin in begins) / len(begins)


def _written(begin: int, end: int, sector: int) -> float:
    touched = -(-end // sector) - begin // sector
    partly = {place // sector for place in (begin, end) if place % sector}
    return touched + (PARTLY - 1) * len(partly)


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
