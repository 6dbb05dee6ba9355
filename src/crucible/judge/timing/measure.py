"""measure: what a process that was found right takes: time beside the baselines, and everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from crucible import legible
from crucible.judge.process.candidate_process import CandidateProcess
from crucible.judge.timing.contents import Contents, TimedSlot
from crucible.judge.timing.contestant import ProcessContestant
from crucible.judge.timing.contestants import Contestants
from crucible.judge.verdict.evidence import NOT_MEASURED, Costs, Finding, Measured, NotMeasured, Timing
from crucible.judge.verdict.stop import Stop
from crucible.judge.verdict.verdict import Verdict
from crucible.judge.verify import Verifier

GRAPH_BELOW_MS = 1.0
"""A GPU step shorter than this is timed as a CUDA graph too: launches, 5 to 10 µs each, are a part of it."""
BUSY_SHARE = 0.2
BUSY_MS = 0.03
"""Kernels, timed one by one with warm caches, may take this much longer than the cold call around them."""


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
    name: str,
    process: CandidateProcess,
    verifier: Verifier,
    rivals: Contestants,
    readings: Readings,
    contents: Sequence[Contents],
    slot: TimedSlot,
) -> None:
    """Times forward, and forward+backward where the task asks for training; then costs; then graph replays.

    Answers to some calls of each race are compared with the oracle. Raises Ended or Stop.
    """
    contestants = [ProcessContestant(name, process, one, slot, verifier.check_timed) for one in contents]
    short = []
    for contestant in contestants:
        contestant.set_up()
        record, doubts = rivals.race(contestant)
        costs = contestant.costs()
        record, more = counted(record, costs)
        readings.add(record)
        readings.costs = costs
        readings.findings += [*doubts, *more]
        short += [contestant] if rivals.device == "cuda" and record.median_ms < GRAPH_BELOW_MS else []
    for contestant in short:
        _replay(contestant, rivals, readings)


def counted(record: Measured, costs: Costs | NotMeasured) -> tuple[Measured, list[Finding]]:
    """The runtime, unless the kernels of one call, on all streams, take longer than that: then it is theirs."""
    if isinstance(costs, NotMeasured) or record.clock != "CUDA events":
        return record, []
    told = record.median_ms
    if costs.busy_ms <= max(told * (1 + BUSY_SHARE), told + BUSY_MS):
        return record, []
    claim = "its kernels take longer than its runtime; theirs counts"
    evidence = (
        f"{costs.busy_ms:.3g} ms on {legible.counted(costs.streams, 'stream')} by the profiler, {told:.3g} ms by events"
    )
    return _lengthened(record, costs.busy_ms), [Finding(claim, evidence)]


def _lengthened(record: Measured, ms: float) -> Measured:
    """The record with `ms` for its median. A runtime of nothing has no spread or ratios to keep."""
    longer = replace(record, median_ms=ms, clock="the profiler")
    if not record.median_ms:
        return replace(longer, quartiles_ms=(ms, ms), speedups=())
    factor = ms / record.median_ms
    first, third = record.quartiles_ms
    return replace(
        longer,
        quartiles_ms=(first * factor, third * factor),
        speedups=tuple(speedup.divided(factor) for speedup in record.speedups),
    )


def _replay(contestant: ProcessContestant, rivals: Contestants, readings: Readings) -> None:
    """Times the step's CUDA graph. A candidate need not have one: kernels launched on the default stream, as many
    are, stay out of the graph, and then its replays compute something else."""
    replayed = contestant.replayed()
    if isinstance(replayed, str):
        readings.add(NotMeasured(f"graph replay: it cannot be captured ({replayed})"))
        return
    try:
        record, doubts = rivals.race(replayed)
    except Stop as stop:
        readings.add(NotMeasured(f"graph replay: the captured graph is not the step ({stop.outcome.words})"))
        return
    readings.add(record)
    readings.findings += doubts
