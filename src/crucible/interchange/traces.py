"""Verdicts as lines of the FlashInfer Trace schema, and the folders that they come from and go to.

DATASET/definitions/**/*.json  workloads/**/*.jsonl  solutions/**/*.json   FlashInfer-Bench: read
DATASET/traces/AUTHOR/OP_TYPE/DEFINITION.jsonl                             appended to
PROBLEM/definition.json  workload.jsonl, and solutions of any name         SOL-ExecBench: read
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible import legible, store
from crucible.errors import MisuseError
from crucible.interchange.definition import (
    Definition,
    Solution,
    Workload,
    definition_of,
    read_json,
    read_lines,
    solution_of,
    workload_of,
)
from crucible.judge.verdict.evidence import Compared, Measured
from crucible.judge.verdict.verdict import Cheated, NotJudged, Passed, Verdict, Wrong
from crucible.run import Run

_NUMERICAL = "INCORRECT_NUMERICAL"
STATUS = {
    "passed": "PASSED",
    "wrong": _NUMERICAL,
    "fragile": _NUMERICAL,
    "incomplete": _NUMERICAL,
    "faulty": "RUNTIME_ERROR",
    "inference-only": "RUNTIME_ERROR",
    "does-not-build": "COMPILE_ERROR",
    "does-not-import": "COMPILE_ERROR",
    "raises": "RUNTIME_ERROR",
    "launch-error": "RUNTIME_ERROR",
    "illegal-access": "RUNTIME_ERROR",
    "out-of-memory": "RUNTIME_ERROR",
    "timed-out": "TIMEOUT",
    "crashed": "RUNTIME_ERROR",
    "cheated": "REWARD_HACK",
}
"""By our outcomes' kinds; what is not judged has none."""
_WRONG = {
    "shape": "INCORRECT_SHAPE",
    "dtype": "INCORRECT_DTYPE",
    "structure": "RUNTIME_ERROR",
    "device": "RUNTIME_ERROR",
}
MOST_LOG = 20_000
"""Characters of a trace's log."""


@dataclass(frozen=True)
class Problem:
    """A definition with its workloads and solutions, and the root of the files that those name."""

    definition: Definition
    workloads: tuple[Workload, ...]
    solutions: tuple[Solution, ...]
    root: Path


def problems(place: Path, solutions: Sequence[Path] = ()) -> list[Problem]:
    """What a dataset's folder or a problem's holds, with the solutions of these files in place of the folder's own.
    Raises MisuseError."""
    given = [solution_of(read_json(file), file) for file in solutions]
    if (place / "definition.json").is_file():
        return [_problem(place, given or list(_solutions(place)))]
    if (place / "definitions").is_dir():
        return _dataset(place, given)
    raise MisuseError(f"{place} has neither a definition.json nor a folder definitions: give a problem or a dataset")


def status_of(verdict: Verdict, *, sol: bool) -> str:
    """The schema's status; empty for what was not judged, and for a pass that was not timed, which the schema does
    not know."""
    outcome = verdict.outcome
    if isinstance(outcome, NotJudged) or (isinstance(outcome, Passed) and not isinstance(verdict.timing, Measured)):
        return ""
    if isinstance(outcome, Cheated) and not sol:
        return "RUNTIME_ERROR"  # FlashInfer-Bench has no word for it; the log has
    if isinstance(outcome, Wrong):
        return _WRONG.get(outcome.what, _NUMERICAL)
    return STATUS[outcome.kind]


def trace_of(run: Run, verdict: Verdict, problem: Problem, workload: Workload, solution: Solution) -> dict[str, Any]:
    """One line. Raises ValueError where `status_of` is empty."""
    status = status_of(verdict, sol=solution.is_sol)
    if not status:
        raise ValueError(f"no status for {verdict.outcome.words}")
    judged = status in ("PASSED", _NUMERICAL)
    return {
        "definition": problem.definition.name,
        "workload": dict(workload.data),
        "solution": solution.name,
        "evaluation": {
            "status": status,
            "environment": {
                "hardware": run.device.name or "unknown",
                "libs": {name: version for name, version in run.versions.items() if version != "-"},
            },
            "timestamp": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "log": legible.lines(f"{verdict.outcome.words}\n{verdict.log}".strip())[:MOST_LOG],
            "correctness": _correctness(run, verdict, sol=solution.is_sol) if judged else None,
            "performance": _performance(run, verdict) if status == "PASSED" else None,
        },
    }


class TraceFile:
    """A JSONL file that lines are appended to; what is there stays, to the letter."""

    def __init__(self, file: Path) -> None:
        """Raises MisuseError where the file holds something else."""
        self.file = file
        self.done = set(_done(file))

    def holds(self, problem: Problem, workload: Workload, solution: Solution) -> bool:
        """Whether somebody has evaluated this solution on this workload."""
        return (problem.definition.name, workload.uuid, solution.name) in self.done

    def add(self, traces: Iterable[dict[str, Any]]) -> None:
        """Raises StoreError."""
        lines = "".join(f"{json.dumps(trace, allow_nan=False)}\n" for trace in traces)
        if lines:
            before = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
            store.write_text(self.file, before + ("\n" if before and not before.endswith("\n") else "") + lines)


def trace_file(place: Path, output: Path | None, problem: Problem, solution: Solution) -> Path:
    """Where a solution's traces go: the file asked for, else as FlashInfer-Bench has it, or beside the problem."""
    if output is not None:
        return output
    if (place / "definition.json").is_file():
        return place / "traces.jsonl"
    name = problem.definition
    return place / "traces" / _safe(solution.author) / _safe(name.op_type) / f"{_safe(name.name)}.jsonl"


def _correctness(run: Run, verdict: Verdict, *, sol: bool) -> dict[str, Any]:
    """The worst of all cases. What is relative is so to |expected| + rms(expected), which the extra says."""
    checks = [verdict.forward] if isinstance(verdict.forward, Compared) else []
    tensors = [tensor for check in checks for tensor in check.tensors]
    known = [tensor.largest for tensor in tensors if tensor.largest is not None]
    nan = any(tensor.nan for tensor in tensors) or (
        isinstance(verdict.outcome, Wrong) and verdict.outcome.what == "nan"
    )
    absolute, relative = max(known, default=0.0), max((tensor.peak for tensor in tensors), default=0.0)
    told = {
        "judge": f"crucible {run.versions.get('crucible-kernels', '-')}",
        "contract": run.contract.name,
        "relative_to": "|expected| + rms(expected)",
        "relative_l2": max((tensor.relative_l2 for tensor in tensors), default=0.0),
        "compared": bool(tensors),
    }
    found = {"max_relative_error": relative, "max_absolute_error": absolute, "extra": told}
    if sol:
        return {**found, "has_nan": nan, "has_inf": False}
    return {**found, "max_relative_error": "NaN", "max_absolute_error": "NaN"} if nan else found


def _performance(run: Run, verdict: Verdict) -> dict[str, float]:
    """Medians; the reference's is eager PyTorch's in the same race, 0 where there was none."""
    timing = verdict.timing
    assert isinstance(timing, Measured)
    over = timing.speedup_over("eager")
    eager = next((one.runtime_ms for one in run.ground.baselines if one.candidate == "eager"), -1.0)
    speedup = over.ratio if over and math.isfinite(over.ratio) else 0.0
    return {"latency_ms": timing.median_ms, "reference_latency_ms": max(eager, 0.0), "speedup_factor": speedup}


def _problem(place: Path, solutions: list[Solution]) -> Problem:
    definition = definition_of(read_json(place / "definition.json"), place / "definition.json")
    file = place / "workload.jsonl"
    workloads = tuple(workload_of(data, file) for data in read_lines(file))
    return Problem(definition, workloads, _of(definition, solutions), place)


def _dataset(place: Path, given: list[Solution]) -> list[Problem]:
    definitions = [definition_of(read_json(file), file) for file in sorted((place / "definitions").rglob("*.json"))]
    solutions = given or [solution_of(read_json(file), file) for file in sorted((place / "solutions").rglob("*.json"))]
    workloads: dict[str, list[Workload]] = {}
    for file in sorted((place / "workloads").rglob("*.jsonl")):
        for data in read_lines(file):
            if not isinstance(data, dict) or "workload" not in data:
                raise MisuseError(f"{file} is no file of workloads: a line has no workload")
            workloads.setdefault(str(data.get("definition")), []).append(workload_of(data["workload"], file))
    return [Problem(one, tuple(workloads.get(one.name, ())), _of(one, solutions), place) for one in definitions]


def _solutions(place: Path) -> Iterator[Solution]:
    """Those beside a problem: every JSON file that has the form of one."""
    for file in sorted(place.glob("*.json")):
        data = read_json(file)
        if isinstance(data, dict) and "spec" in data and "sources" in data:
            yield solution_of(data, file)


def _of(definition: Definition, solutions: Iterable[Solution]) -> tuple[Solution, ...]:
    chosen = [solution for solution in solutions if solution.definition == definition.name]
    names = [solution.name for solution in chosen]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MisuseError(f"two solutions of {definition.name} are named {twice!r}: rename one")
    return tuple(chosen)


def _done(file: Path) -> Iterator[tuple[str, str, str]]:
    if not file.exists():
        return
    for data in read_lines(file):
        workload = data.get("workload") if isinstance(data, dict) else None
        if not isinstance(workload, dict):
            raise MisuseError(f"{file} holds something else than traces: name another file")
        if data.get("evaluation"):
            yield str(data.get("definition")), str(workload.get("uuid")), str(data.get("solution"))


def _safe(name: str) -> str:
    """A name as a file's."""
    return re.sub(r"[^\w.+-]", "_", name, flags=re.ASCII).lstrip(".") or "_"
