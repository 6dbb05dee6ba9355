"""What was measured becomes a verdict's columns, and the kernels' own time counts where it is longer."""

from __future__ import annotations

import dataclasses

import pytest

from crucible.judge.timing.measure import Readings, counted
from crucible.judge.verdict.evidence import NOT_MEASURED, Costs, Finding, Kernel, Measured, NotMeasured, Speedup
from crucible.judge.verdict.verdict import Passed, Verdict

SPEEDUP = Speedup("eager", 3.0, (2.9, 3.1), (2.9, 3.0, 3.1))
RECORD = Measured(1.0, (0.9, 1.2), 40, "CUDA events", "forward", speedups=(SPEEDUP,))
FORWARD = Measured(2.0, (2.0, 2.0), 9, "CPU time", "forward")
BOTH = dataclasses.replace(FORWARD, median_ms=5.0, covers="forward+backward")
REPLAY = dataclasses.replace(FORWARD, median_ms=0.5, how="graph replay")


def costs(busy_ms: float, streams: int = 1) -> Costs:
    return Costs(1.0, 1024, 2, (Kernel("gemm", 1, busy_ms),), busy_ms, busy_ms, streams)


@pytest.mark.parametrize(("runtime", "busy"), [(1.0, 0.0), (1.0, 0.99), (1.0, 1.19), (0.01, 0.039)])
def test_kernels_that_fit_into_the_runtime_change_nothing(runtime: float, busy: float) -> None:
    """A little more is what their being timed one by one costs."""
    record = dataclasses.replace(RECORD, median_ms=runtime)
    assert counted(record, costs(busy)) == (record, [])


@pytest.mark.parametrize(("runtime", "busy"), [(1.0, 1.21), (0.01, 0.041), (1.0, 4.0)])
def test_kernels_that_do_not_fit_count(runtime: float, busy: float) -> None:
    record = dataclasses.replace(RECORD, median_ms=runtime, quartiles_ms=(0.9 * runtime, 1.2 * runtime))
    found, findings = counted(record, costs(busy, 3))
    assert (found.median_ms, found.clock, found.samples) == (busy, "the profiler", 40)
    assert found.quartiles_ms == pytest.approx((0.9 * busy, 1.2 * busy))
    (speedup,) = found.speedups
    factor = busy / runtime
    assert speedup.ratio == pytest.approx(3.0 / factor)
    assert speedup.interval == pytest.approx((2.9 / factor, 3.1 / factor))
    assert speedup.rounds == pytest.approx((2.9 / factor, 3.0 / factor, 3.1 / factor))
    (finding,) = findings
    assert "on 3 streams" in finding.evidence


def test_a_runtime_of_nothing_is_the_kernels_time() -> None:
    """What events say of work on a side stream, where nobody waits for it."""
    found, _ = counted(dataclasses.replace(RECORD, median_ms=0.0, quartiles_ms=(0.0, 0.0)), costs(4.0))
    assert found.median_ms == 4.0


@pytest.mark.parametrize("clock", ["CPU time", "wall time", "the judge's own clock"])
def test_where_another_clock_counts_already_it_stays(clock: str) -> None:
    record = dataclasses.replace(RECORD, clock=clock)
    assert counted(record, costs(4.0)) == (record, [])


def test_without_a_profile_the_events_stand() -> None:
    assert counted(RECORD, NotMeasured("the profiler failed")) == (RECORD, [])


def test_the_runtime_is_the_last_step_as_called_and_the_rest_stands_further() -> None:
    readings = Readings()
    for timing in (FORWARD, BOTH, REPLAY, NotMeasured("graph replay: it cannot be captured")):
        readings.add(timing)
    verdict = readings.fill(Verdict("a", Passed()))
    assert verdict.timing == BOTH
    assert verdict.runtime_ms == 5.0
    assert verdict.further == (FORWARD, REPLAY, NotMeasured("graph replay: it cannot be captured"))


def test_a_replay_is_never_the_runtime() -> None:
    readings = Readings()
    readings.add(REPLAY)
    assert readings.timing == NOT_MEASURED
    readings.add(FORWARD)
    assert (readings.timing, readings.further) == (FORWARD, [REPLAY])


def test_readings_add_their_findings_to_the_verdicts_own() -> None:
    readings = Readings(findings=[Finding("late", "2")], costs=costs(1.0))
    verdict = readings.fill(Verdict("a", Passed(), findings=(Finding("early", "1"),)))
    assert [finding.claim for finding in verdict.findings] == ["early", "late"]
    assert verdict.costs == costs(1.0)
