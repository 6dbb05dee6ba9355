"""Run: a task's candidates with their verdicts, ranked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crucible.contract import Contract
from crucible.hardware import Device
from crucible.judge.verdict import Finding, Measured, NotJudged, Verdict, to_json
from crucible.task import Task

SCHEMA = "crucible.run/1"


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
    findings: tuple[Finding, ...] = ()
    """About the check itself: its precision, its power."""
    folder: str = ""
    """Where the run is kept; empty when it could not be."""
    trouble: str = ""
    """What went wrong around the verdicts: a record that could not be written, a run cut short."""
    cut_short: str = ""
    """`interrupted` or `failed` when candidates are missing from the verdicts for that reason."""

    @property
    def ranked(self) -> list[tuple[int, Verdict]]:
        """Best first: passed by runtime (ties share a rank), then what could not be judged, then the rest.

        Two runtimes tie when their quartile ranges overlap.
        """
        passed = sorted((v for v in self.verdicts if v.evaluation), key=lambda v: v.runtime_ms)
        rows: list[tuple[int, Verdict]] = []
        for i, verdict in enumerate(passed):
            tied = i > 0 and _overlap(rows[-1][1], verdict)
            rows.append((rows[-1][0] if tied else i + 1, verdict))
        rest = [v for v in self.verdicts if not v.evaluation]
        rest.sort(key=lambda v: not isinstance(v.outcome, NotJudged))
        return rows + [(0, v) for v in rest]

    @property
    def best(self) -> str | None:
        """Name of the fastest that passed; None when none did."""
        ranked = self.ranked
        return ranked[0][1].candidate if ranked and ranked[0][1].evaluation else None

    def verdict(self, name: str) -> Verdict:
        """The verdict of one candidate. Raises KeyError."""
        return {v.candidate: v for v in self.verdicts}[name]

    def to_json(self) -> dict[str, Any]:
        """The run as JSON data, schema `crucible.run/1` (see docs/schema.md)."""
        return {
            "schema": SCHEMA,
            "task": self.task.name,
            "device": {"kind": self.device.kind, "name": self.device.name, "driver": self.device.driver},
            "versions": self.versions,
            "contract": self.contract.name,
            "scale": self.task.scale,
            "training": self.task.training,
            "mode": self.task.mode,
            "seed": self.seed,
            "findings": [to_json(finding) for finding in self.findings],
            "candidates": [candidate_json(rank, verdict) for rank, verdict in self.ranked],
            "best": self.best,
            "trouble": self.trouble,
            "cut_short": self.cut_short,
        }


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
        "findings": [to_json(finding) for finding in verdict.findings],
        "build_s": verdict.build_s,
        "total_s": verdict.total_s,
        "stages_s": dict(verdict.stages_s),
        "cached": verdict.cached,
        "log": verdict.log,
    }


def _overlap(a: Verdict, b: Verdict) -> bool:
    if not (isinstance(a.timing, Measured) and isinstance(b.timing, Measured)):
        return False
    return b.timing.quartiles_ms[0] <= a.timing.quartiles_ms[1]
