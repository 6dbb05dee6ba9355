"""Run: a task's candidates with their verdicts, ranked."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from crucible.contract import Contract, find_contract
from crucible.errors import MisuseError, RecordError
from crucible.hardware import Device
from crucible.judge.timing.baselines import ANCHOR
from crucible.judge.verdict.evidence import Finding, Measured, NotMeasured, NoVariant, Timing
from crucible.judge.verdict.modelled import Modelled, NotModelled
from crucible.judge.verdict.sanitizer_reports import NotSanitized
from crucible.judge.verdict.trials import NotShrunk
from crucible.judge.verdict.typed import check
from crucible.judge.verdict.verdict import NO_FLOOR, NotJudged, Verdict, from_json, to_json
from crucible.roofline import Floor
from crucible.spread import quotient
from crucible.task import Task

SCHEMA = "crucible.run/1"
WITHOUT_BASELINES = "candidates are judged without baselines: the judge failed on those"
"""What a run's findings say where there should have been some."""
BELIEVABLE = 1.05
"""Of the floor: its rates are measured within a few percent."""
MODELS_DIFFER = 1.01
"""Times as long, from which on a modelled time is another."""


@dataclass(frozen=True)
class Ground:
    """What holds for all candidates of a run."""

    findings: tuple[Finding, ...] = ()
    """About the check itself: its precision, its power."""
    baselines: tuple[Verdict, ...] = ()
    """The reference as PyTorch runs it, in the order asked for."""
    floors: tuple[Floor, ...] = ()
    """The least time of forward, and of forward+backward where that is judged; empty where it is not known."""

    def share_of_floor(self, timing: Timing) -> float:
        """The floor by the runtime, 1 at the hardware's limit; 0 where there is nothing to compare."""
        floors = {floor.covers: floor.time_ms for floor in self.floors}
        measured = isinstance(timing, Measured) and timing.median_ms > 0 and timing.covers in floors
        return floors[timing.covers] / timing.median_ms if measured and isinstance(timing, Measured) else 0.0

    def questions(self, timing: Timing) -> tuple[Finding, ...]:
        """A doubt where a runtime is below the floor: not a proof of anything, but a reason to look."""
        share = self.share_of_floor(timing)
        if share <= BELIEVABLE or not isinstance(timing, Measured):
            return ()
        words = next(floor.words for floor in self.floors if floor.covers == timing.covers)
        claim = "faster than the floor: it does less than the task seems to need, or the clock is wrong"
        return (Finding(claim, f"{timing.median_ms:.3g} ms; the floor is {words}"),)


@dataclass(frozen=True)
class Run:
    """What `judge` returns."""

    task: Task
    contract: Contract
    device: Device
    versions: dict[str, str]
    seed: int
    verdicts: tuple[Verdict, ...]
    """In the order the candidates were given."""
    ground: Ground = Ground()
    gpu: str = ""
    """The GPU that the emulator answers as and nvcc compiles for; empty on a real one."""
    folder: str = ""
    """Where the run is kept; empty when it could not be."""
    trouble: str = ""
    """What went wrong around the verdicts: a record that could not be written, a run cut short."""
    cut_short: str = ""
    """`interrupted` or `failed` when candidates are missing from the verdicts for that reason."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Each candidate's text."""
    explanations: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    """Why each candidate is wrong or slow, the cause first (`crucible.explain`)."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Where each candidate was read from. A record does not keep it: it names somebody's folders."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """About the check itself: its precision, its power."""
        return self.ground.findings

    @cached_property
    def ranked(self) -> list[tuple[int, Verdict]]:
        """Best first: passed by runtime, passed on the emulator, then what could not be judged, then the rest.

        Who cannot be told from the first of a rank, at 95 % confidence, shares it. Candidates are compared through
        the baseline that each took turns with, so that a drift of the machine between them does not count. Those
        that passed without a runtime share the rank after, by modelled time, which ranks them nowhere else
        (`modelled_ranks`).
        """
        timed = [v for v in self.passed if isinstance(v.timing, Measured)]
        raced = all(_against_anchor(v) for v in timed)
        timed.sort(key=lambda v: 1 / statistics.median(_against_anchor(v)) if raced else v.runtime_ms)
        rows: list[tuple[int, Verdict]] = []
        first = None
        for i, verdict in enumerate(timed):
            if first is None or not tied(first, verdict):
                first, rank = verdict, i + 1
            rows.append((rank, verdict))
        untimed = [v for v in self.passed if isinstance(v.timing, NotMeasured)]
        rows += [(len(timed) + 1, v) for v in sorted(untimed, key=_modelled_ms)]
        rest = [v for v in self.verdicts if not v.evaluation]
        rest.sort(key=lambda v: not isinstance(v.outcome, NotJudged))
        return rows + [(0, v) for v in rest]

    @cached_property
    def modelled_ranks(self) -> dict[str, int]:
        """Of those that passed on the emulator and have a modelled time, their ranks by it, among themselves alone;
        who is within a hundredth of the first of a rank shares it: the counts tell no more apart."""
        ranks: dict[str, int] = {}
        first, rank = 0.0, 0
        for i, verdict in enumerate(sorted(self.passed, key=_modelled_ms)):
            time_ms = _modelled_ms(verdict)
            if math.isinf(time_ms):
                break
            if not rank or time_ms > MODELS_DIFFER * first:
                first, rank = time_ms, i + 1
            ranks[verdict.candidate] = rank
        return ranks

    @property
    def best(self) -> str | None:
        """Name of the fastest that passed; None when none did, or none was timed."""
        ranked = self.ranked
        return ranked[0][1].candidate if ranked and ranked[0][1].runtime_ms >= 0 else None

    @property
    def passed(self) -> tuple[Verdict, ...]:
        """Of what was judged, all that is right."""
        return tuple(verdict for verdict in self.verdicts if verdict.evaluation)

    def verdict(self, name: str) -> Verdict:
        """The verdict of one candidate. Raises KeyError."""
        return {v.candidate: v for v in self.verdicts}[name]

    def to_json(self) -> dict[str, Any]:
        """The run as JSON data, schema `crucible.run/1` (see docs/schema.md)."""
        return {
            "schema": SCHEMA,
            "task": self.task.name,
            "device": {"kind": self.device.kind, "name": self.device.name, "driver": self.device.driver},
            "gpu": self.gpu,
            "versions": self.versions,
            "contract": self.contract.name,
            "scale": self.task.scale,
            "training": self.task.training,
            "mode": self.task.mode,
            "seed": self.seed,
            "findings": [to_json(finding) for finding in self.ground.findings],
            "floors": [to_json(floor) for floor in self.ground.floors],
            "baselines": [self._entry(0, verdict) for verdict in self.ground.baselines],
            "candidates": [self._entry(rank, verdict) for rank, verdict in self.ranked],
            "best": self.best,
            "trouble": self.trouble,
            "cut_short": self.cut_short,
        }

    def _entry(self, rank: int, verdict: Verdict) -> dict[str, Any]:
        name = verdict.candidate
        return {
            **candidate_json(rank, verdict),
            "modelled_rank": self.modelled_ranks.get(name, 0),
            "share_of_floor": self.ground.share_of_floor(verdict.timing),
            "explanations": [to_json(finding) for finding in self.explanations.get(name, ())],
            "source": self.sources.get(name, ""),
        }


def _modelled_ms(verdict: Verdict) -> float:
    modelled = verdict.modelled
    return modelled.time_ms if isinstance(modelled, Modelled) and verdict.evaluation else math.inf


def candidate_json(rank: int, verdict: Verdict) -> dict[str, Any]:
    """One candidate's entry: the field's columns first, the evidence after."""
    return {
        "name": verdict.candidate,
        "evaluation": verdict.evaluation,
        "runtime_ms": verdict.runtime_ms,
        "verdict": {**to_json(verdict.outcome), "words": verdict.outcome.words},
        "rank": rank,
        "forward": to_json(verdict.forward),
        "backward": to_json(verdict.backward),
        "timing": to_json(verdict.timing),
        "further_timings": [to_json(timing) for timing in verdict.further],
        "costs": to_json(verdict.costs),
        "whose": to_json(verdict.whose),
        "share_of_floor": verdict.share_of_floor if isinstance(verdict.share_of_floor, float) else 0.0,
        "accesses": to_json(verdict.accesses),
        "modelled": to_json(verdict.modelled),
        "resources": [to_json(one) for one in verdict.resources],
        "faults": [to_json(fault) for fault in verdict.faults],
        "variant": to_json(verdict.variant),
        "smallest_failing": to_json(verdict.smallest_failing),
        "stress": [to_json(one) for one in verdict.stress],
        "sanitizer": to_json(verdict.sanitizer),
        "findings": [to_json(finding) for finding in verdict.findings],
        "build_s": verdict.build_s,
        "total_s": verdict.total_s,
        "stages_s": dict(verdict.stages_s),
        "waits_s": dict(verdict.waits_s),
        "seed": verdict.seed,
        "cached": verdict.cached,
        "log": verdict.log,
    }


def tied(a: Verdict, b: Verdict) -> bool:
    """Whether the interval of the ratio of two runtimes holds 1."""
    if not (isinstance(a.timing, Measured) and isinstance(b.timing, Measured)):
        return False
    one, two = _against_anchor(a), _against_anchor(b)
    if one and two:
        return quotient(one, two).reported.holds_one
    return b.timing.quartiles_ms[0] <= a.timing.quartiles_ms[1] and a.timing.quartiles_ms[0] <= b.timing.quartiles_ms[1]


def _against_anchor(verdict: Verdict) -> tuple[float, ...]:
    """A candidate's speed-up over the anchor, round by round; empty when they did not take turns."""
    timing = verdict.timing
    speedups = timing.speedups if isinstance(timing, Measured) else ()
    return next((s.rounds for s in speedups if s.baseline == ANCHOR), ())


def ground_from_json(data: dict[str, Any]) -> Ground:
    """The record that `to_json` wrote. Raises KeyError or TypeError when it is of another version."""
    return Ground(from_json(data["findings"]), from_json(data["baselines"]), from_json(data["floors"]))


def run_from_json(data: Any) -> Run:
    """The run that `Run.to_json` wrote, without the task's text. Raises RecordError when it is of another schema, or
    is not a run at all."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        schema = data.get("schema", "none") if isinstance(data, dict) else "none"
        raise RecordError(f"not a record of this version: its schema is {schema!r}, wanted {SCHEMA!r}; judge again")
    try:
        run = _run(data)
        check(run)
        return run
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, MisuseError) as error:
        raise RecordError(f"not a whole {SCHEMA} record ({type(error).__name__}: {error}): judge again") from error


def _run(data: dict[str, Any]) -> Run:
    task = Task(data["task"], Path(), "", {}, scale=data["scale"], training=data["training"], mode=data["mode"])
    baselines = tuple(_verdict(entry) for entry in data["baselines"])
    entries = data["candidates"]
    return Run(
        task,
        find_contract(data["contract"]),
        Device(**data["device"]),
        data["versions"],
        data["seed"],
        tuple(_verdict(entry) for entry in entries),
        Ground(from_json(data["findings"]), baselines, from_json(data["floors"])),
        data.get("gpu", ""),
        trouble=data["trouble"],
        cut_short=data["cut_short"],
        sources={entry["name"]: entry.get("source", "") for entry in entries},
        explanations={e["name"]: from_json(e["explanations"]) for e in entries if "explanations" in e},
    )


def verdict_from_json(entry: Any) -> Verdict:
    """What `candidate_json` wrote. Raises RecordError."""
    try:
        verdict = _verdict(entry)
        check(verdict)
        return verdict
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise RecordError(f"not a candidate's whole record ({type(error).__name__}: {error})") from error


_LATER: dict[str, Any] = {
    "accesses": to_json(NotMeasured("not kept")), "resources": [], "faults": [], "log": "",
    "variant": to_json(NoVariant("not kept")), "smallest_failing": to_json(NotShrunk("not kept")),
    "modelled": to_json(NotModelled("not kept")),
    "sanitizer": to_json(NotSanitized("not kept")), "whose": to_json(NotMeasured("not kept")), "seed": 0,
    "waits_s": {}, "stress": [],
}  # fmt: skip
"""Fields that records of this schema have not always had."""


def _verdict(entry: dict[str, Any]) -> Verdict:
    """What `candidate_json` wrote, or wrote before it kept all that it keeps now."""
    entry = {**_LATER, **entry}
    outcome = {name: value for name, value in entry["verdict"].items() if name != "words"}
    same = ("forward", "backward", "timing", "costs", "accesses", "modelled", "resources", "faults", "variant",
            "findings", "smallest_failing", "sanitizer", "stress", "whose")  # fmt: skip
    return Verdict(
        entry["name"],
        from_json(outcome),
        **{name: from_json(entry[name]) for name in same},
        share_of_floor=float(entry.get("share_of_floor", 0.0)) or NO_FLOOR,
        further=from_json(entry["further_timings"]),
        **{name: entry[name] for name in ("build_s", "total_s", "log", "cached", "seed")},
        stages_s=tuple(entry["stages_s"].items()),
        waits_s=tuple(entry["waits_s"].items()),
    )
