"""What takes the time, from records alone: each finding with a candidate that shows it and one that nearly does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from explaining import a_run, claims

from crucible.emulator.trace import Launch, Line, Trace
from crucible.explain.findings import explain
from crucible.judge.verdict.evidence import Costs, Finding, Kernel, Measured, NotMeasured, Resources
from crucible.judge.verdict.verdict import Passed, Verdict, Wrong
from crucible.roofline import Floor
from crucible.run import Ground

FLOOR = Floor("forward", 0.5, "memory", "0.5 ms: 2 GB at 4 TB/s", 2_000_000_000, 100_000_000_000)
COPY = "void cudnn::ops::nchwToNhwcKernel<float>"
LINE = Line("k", "cuda.cu", 3, "load", "global", 4, 1000, 128000, 4000, 4000, 0, 0, 0, 0, 0, 0)
RESOURCES = Resources("k", 256, 32, 0, 0, 0, 0, 0, 8, 64, 1.0, "threads")
SOURCE = '''CUDA = r"""
__global__ void k(const float* x, float* out) {
    out[threadIdx.x] = x[32 * threadIdx.x];
}
"""
'''


def timed(ms: float, how: str = "as called", covers: str = "forward") -> Measured:
    return Measured(ms, (0.99 * ms, 1.01 * ms), 100, "CUDA events", covers, how)


def costs(*kernels: tuple[str, int, float], span: float = 0.0, peak: int = 1 << 20, allocations: int = 1) -> Costs:
    busy = sum(ms for _, _, ms in kernels)
    return Costs(1.0, peak, allocations, tuple(Kernel(*k) for k in kernels), busy, span or busy, 1)


def passed(name: str, ms: float, spent: Costs | None = None, **more: Any) -> Verdict:
    taken = spent or costs(("k", 1, ms))
    return Verdict(name, Passed(), timing=timed(ms), costs=taken, **more)


def found(*verdicts: Verdict, **more: Any) -> tuple[Finding, ...]:
    """Of the last one, in a run of all."""
    settings = {"ground": Ground(floors=(FLOOR,)), "source": SOURCE, **more}
    return explain(verdicts[-1], a_run(*verdicts, **settings))


def test_the_distance_from_the_floor_comes_with_its_rates_and_what_it_is_made_of() -> None:
    spent = costs(("gemm", 1, 3.0), (COPY, 2, 0.1), ("fill_kernel", 1, 0.05))
    (first, *_) = found(passed("a", 4.0, spent))
    assert first.claim == "it takes 8 times the least time, which memory sets"
    assert "it reaches 500 GB/s of needed bytes and 25 TFLOP/s of matrix products" in first.evidence
    assert "gemm 3 ms; gaps between kernels 0.85 ms; layout copies 0.1 ms; fills 0.05 ms" in first.evidence
    assert first.remedy == "3.5 ms are left to gain, most of it in gemm"


@pytest.mark.parametrize("ground", [Ground(floors=(replace(FLOOR, time_ms=0.9),)), Ground()])
def test_near_the_floor_or_without_one_nothing_is_asked(ground: Ground) -> None:
    assert found(passed("a", 1.0), ground=ground) == ()


def test_what_the_best_does_differently_comes_in_numbers() -> None:
    best = passed("best", 1.0, costs(("k", 1, 0.9), peak=1 << 20))
    slow = passed("slow", 2.5, costs(("gemm", 1, 1.5), (COPY, 3, 0.6), peak=1 << 24, allocations=5))
    (first, *_) = found(best, slow)
    assert first.claim == "it takes 2.5 times as long as the best, best: 0.6 ms of layout copies instead of 0"
    for words in ("4 kernels instead of 1", "2.1 ms of kernels instead of 0.9", "16.8 MB at its peak", "5 allocations"):
        assert words in first.evidence
    assert "as long as the best" not in claims(found(slow, best))
    assert "as long as the best" not in claims(found(best, replace(best, candidate="same")))


def test_launch_gaps_are_told_by_a_graphs_replay_or_by_the_spans() -> None:
    replayed = passed("a", 1.0, further=(timed(0.6, "graph replay"),))
    assert "40% of its time goes into launches" in claims(found(replayed))
    assert "launches" not in claims(found(replace(replayed, further=(timed(0.95, "graph replay"),))))
    assert "20% of its time goes into launches" in claims(found(passed("a", 1.0, costs(("k", 9, 0.7), span=0.9))))
    assert "launches" not in claims(found(passed("a", 1.0, costs(("k", 9, 0.85), span=0.9))))


def test_layout_copies_are_told_from_five_percent_on() -> None:
    assert "6% of its time goes into copies" in claims(
        found(passed("a", 1.0, costs(("gemm", 1, 0.94), (COPY, 1, 0.06))))
    )
    assert "copies" not in claims(found(passed("a", 1.0, costs(("gemm", 1, 0.96), (COPY, 1, 0.04)))))


def test_the_kernel_with_most_of_the_time_is_named() -> None:
    assert "one kernel of 2 takes 60%" in claims(found(passed("a", 1.0, costs(("gemm", 1, 0.6), ("b", 1, 0.4)))))
    thirds = costs(("a", 1, 0.4), ("b", 1, 0.3), ("c", 1, 0.3))
    assert "one kernel" not in claims(found(passed("a", 1.0, thirds)))


def emulated(*lines: Line, launch: Launch | None = None, **more: Any) -> Verdict:
    """One that passed on the emulator."""
    trace = Trace((launch,) if launch else (), lines)
    return Verdict("a", Passed(), timing=NotMeasured("emulated"), accesses=trace, **more)


def test_scattered_accesses_are_told_with_their_line() -> None:
    (one,) = found(emulated(replace(LINE, sectors=32000)))
    assert "`k` loads 8 times the memory that it needs" in one.claim
    assert "line 3: 32000 sectors of 32 bytes where 4000 would do" in one.evidence
    assert (one.line, one.kernel) == (3, "k")
    assert found(emulated(replace(LINE, sectors=7000))) == ()
    rare = replace(LINE, sectors=320, ideal_sectors=40, line=4)
    assert found(emulated(LINE, rare)) == ()


def test_bank_conflicts_are_told() -> None:
    shared = replace(
        LINE, space="shared", sectors=0, ideal_sectors=0, wavefronts=32000, ideal_wavefronts=1000, worst_ways=32
    )
    assert "32-way bank conflicts" in claims(found(emulated(shared)))
    assert found(emulated(replace(shared, wavefronts=1500, worst_ways=2))) == ()


def test_contended_atomics_are_told() -> None:
    atomic = replace(LINE, operation="atomic", atomics=4096, worst_in_warp=32, worst_on_address=4096)
    assert "4096 atomic operations on one address" in claims(found(emulated(atomic)))
    assert found(emulated(replace(atomic, worst_on_address=128))) == ()


def test_spills_and_occupancy_are_told() -> None:
    assert "`k` spills registers" in claims(found(emulated(resources=(replace(RESOURCES, spill_store_bytes=64),))))
    low = replace(RESOURCES, occupancy=0.25, limited_by="registers")
    assert "fills 25% of a multiprocessor's warps, limited by registers" in claims(found(emulated(resources=(low,))))
    assert found(emulated(resources=(replace(RESOURCES, occupancy=0.5),))) == ()


def test_a_grid_smaller_than_the_gpu_is_told_where_there_is_work_to_split() -> None:
    launch = Launch("k", (16, 1, 1), (256, 1, 1), 0, 1, 16, 0)
    work = replace(LINE, bytes=1 << 24)
    assert "fewer blocks than the GPU has multiprocessors" in claims(found(emulated(work, launch=launch)))
    assert found(emulated(LINE, launch=launch)) == ()
    assert found(emulated(work, launch=replace(launch, grid=(132, 1, 1)))) == ()


def test_who_did_not_pass_is_not_told_how_to_be_fast() -> None:
    slow = replace(passed("a", 4.0), outcome=Wrong("shape", "[3], should be [4]"))
    assert "times the least time" not in claims(found(slow))
