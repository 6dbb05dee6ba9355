"""measure: what a process that was found right takes: time beside the baselines, and everything else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from crucible.judge.evidence import NOT_MEASURED, Costs, Finding, Measured, NotMeasured, Timing
from crucible.judge.field import Field
from crucible.judge.lane import Lane
from crucible.judge.process import CandidateProcess
from crucible.judge.verdict import Verdict
from crucible.judge.verify import Stop, Verifier

GRAPH_BELOW_MS = 1.0
"""A GPU step shorter than this is timed as a CUDA graph too: launches, 5 to 10 µs each, are a part of it."""
SPAN_SLACK = 1.5
SPAN_SLACK_MS = 0.2


@dataclass
class Readings:
    """What was measured so far; stays true when the candidate fails half-way."""

    timing: Timing = NOT_MEASURED
    further: list[Timing] = field(default_factory=list)
    costs: Costs | NotMeasured = NOT_MEASURED
    findings: list[Finding] = field(default_factory=list)

    def add(self, timing: Timing) -> None:
        """One more timing. The last one of the step as called is what the Runtime column says."""
        if isinstance(timing, Measured) and timing.how == "as called":
            self.further += [self.timing] if isinstance(self.timing, Measured) else []
            self.timing = timing
        else:
            self.further.append(timing)

    def fill(self, verdict: Verdict) -> Verdict:
        """The verdict with these readings in it."""
        return replace(
            verdict,
            timing=self.timing,
            further=tuple(self.further),
            costs=self.costs,
            findings=(*verdict.findings, *self.findings),
        )


def measure(
    name: str, process: CandidateProcess, verifier: Verifier, rivals: Field, readings: Readings, *, training: bool
) -> None:
    """Times forward, and forward+backward where the task asks for training; then costs; then a graph's replay.

    The output of a timed sample, chosen by chance, is compared with the oracle each time. Raises Ended or Stop.
    """
    lanes = [Lane(name, process, backward=backward) for backward in ((False, True) if training else (False,))]
    short = []
    for lane in lanes:
        lane.set_up()
        record, doubts = rivals.race(lane)
        verifier.check_timed(lane.case, gradients=lane.backward)
        readings.add(record)
        readings.findings += doubts
        short += [lane] if rivals.device == "cuda" and record.median_ms < GRAPH_BELOW_MS else []
    readings.costs = lanes[-1].costs()
    readings.findings += _outlasts(record, readings.costs)
    for lane in short:
        _replay(lane, verifier, rivals, readings)


def _replay(lane: Lane, verifier: Verifier, rivals: Field, readings: Readings) -> None:
    """Times the step's CUDA graph. A candidate need not have one: kernels launched on the default stream, as many
    are, stay out of the graph, and then its replays compute something else."""
    replayed = lane.replayed()
    if isinstance(replayed, str):
        readings.add(NotMeasured(f"graph replay: it cannot be captured ({replayed})"))
        return
    record, doubts = rivals.race(replayed)
    try:
        verifier.check_timed(lane.case, gradients=lane.backward)
    except Stop as stop:
        readings.add(NotMeasured(f"graph replay: the captured graph is not the step ({stop.outcome.words})"))
        return
    readings.add(record)
    readings.findings += doubts


def _outlasts(record: Measured, costs: Costs | NotMeasured) -> list[Finding]:
    """Kernels that run on, on whatever stream, after the clock has stopped."""
    if isinstance(costs, NotMeasured) or record.clock != "CUDA events":
        return []
    if costs.span_ms <= max(record.median_ms * SPAN_SLACK, record.median_ms + SPAN_SLACK_MS):
        return []
    evidence = f"{costs.span_ms:.3g} ms on {costs.streams} streams by the profiler, {record.median_ms:.3g} ms by events"
    return [Finding("its kernels span more than its runtime", evidence)]
