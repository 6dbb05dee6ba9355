"""Runs for code scanning: what did not pass, and what the emulator saw, each at its line of the candidate's file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from crucible.emulator.faults import Fault
from crucible.explain.faults import KINDS
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import OUTCOMES, DoesNotBuild, DoesNotImport, NotJudged, Raises, Verdict
from crucible.report.sarif import Location, Result, Trouble, sarif
from crucible.report.why import findings_of
from crucible.run import Run

RULES = {
    **{kind: (outcome.__doc__ or kind).split("\n")[0] for kind, outcome in OUTCOMES.items()},
    **{kind: f"A kernel {does}." for kind, (does, _) in KINDS.items()},
}
"""What each rule means: outcomes of candidates, and the emulator's kinds of fault."""


def scanned(runs: Sequence[Run]) -> str:
    """SARIF of runs. Who passed without a fault is not in it; what the judge failed on is trouble, not a result."""
    results = [result for run in runs for verdict in run.verdicts for result in _results(run, verdict)]
    version = next((run.versions.get("crucible-kernels", "") for run in runs), "")
    trouble = [one for run in runs for one in _trouble(run)]
    return sarif(results, trouble=trouble, rules=RULES, version=version)


def file_of(run: Run, name: str) -> str | Path:
    """Where a candidate was read from; of a run from a record, as it will have been called."""
    return run.files.get(name, f"{name}.py")


def line_of(verdict: Verdict, cause: Finding | None) -> int:
    """Of the candidate's file: a message's of compiler or Python, or that of the fault that an outcome tells of. 0 for
    the file as a whole: an answer is wrong in no line."""
    outcome = verdict.outcome
    if isinstance(outcome, DoesNotBuild | DoesNotImport | Raises):
        return outcome.line or (cause.line if cause else 0)
    return next((_line(fault) for fault in verdict.faults if fault.words in outcome.words), 0)


def _results(run: Run, verdict: Verdict) -> Iterator[Result]:
    outcome, file = verdict.outcome, file_of(run, verdict.candidate)
    failed = not (verdict.evaluation or isinstance(outcome, NotJudged))
    if failed:
        cause = next(iter(findings_of(run, verdict)), None)
        yield Result(outcome.kind, "error", _message(verdict, cause), file, line_of(verdict, cause))
    for fault in verdict.faults:
        if failed and fault.words in outcome.words:
            continue
        level = ("error" if failed else "warning") if fault.convicts else "note"
        yield Result(fault.kind, level, f"{verdict.candidate}: {fault.words}", file, _line(fault), _other(fault, file))


def _message(verdict: Verdict, cause: Finding | None) -> str:
    lines = [f"{verdict.candidate}: {verdict.outcome.words}"]
    if cause is not None:
        lines += [f"Cause: {cause.claim}", *([f"Do: {cause.remedy}"] if cause.remedy else [])]
    return "\n".join(lines)


def _line(fault: Fault) -> int:
    return fault.python_line or (fault.line if fault.file.endswith(".py") else 0)


def _other(fault: Fault, file: str | Path) -> tuple[Location, ...]:
    line = fault.other_python_line or (fault.other_line if fault.file.endswith(".py") else 0)
    return (Location(file, line, "the other side"),) if line else ()


def _trouble(run: Run) -> Iterator[Trouble]:
    if run.trouble or run.cut_short:
        yield Trouble(run.trouble or run.cut_short, "error" if run.cut_short else "warning")
    for verdict in run.verdicts:
        if isinstance(verdict.outcome, NotJudged):
            level = "error" if verdict.outcome.failed else "warning"
            yield Trouble(f"{verdict.candidate}: {verdict.outcome.words}", level)
