"""Findings in the terminal: the cause, its evidence, what to do."""

from __future__ import annotations

from rich.console import Console

from crucible.errors import RecordError
from crucible.explain.findings import explain
from crucible.explain.source import line_text
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import Verdict
from crucible.legible import counted
from crucible.report.words import words
from crucible.run import Run

BRIEF = 3
"""Findings of each candidate where all are shown."""


def show(run: Run, candidate: str | None, console: Console) -> None:
    """Prints why each candidate is wrong or slow, or all that is known of one. Raises RecordError for a name that
    the run does not have."""
    if candidate is None:
        console.print(
            words(f"{run.task.name}: {counted(len(run.verdicts), 'candidate')}, best: {run.best or 'none'}"),
            soft_wrap=True,
        )
        for _, verdict in run.ranked:
            _show_one(run, verdict, console, BRIEF)
        return
    names = [verdict.candidate for verdict in run.verdicts]
    if candidate not in names:
        raise RecordError(f"the run has no candidate {candidate!r}: it has {', '.join(names) or 'none'}")
    _show_one(run, run.verdict(candidate), console, None)


def findings_of(run: Run, verdict: Verdict) -> tuple[Finding, ...]:
    """As the run recorded them; of a record from before that, what its facts say."""
    recorded = run.explanations.get(verdict.candidate)
    return explain(verdict, run) if recorded is None else recorded


def _show_one(run: Run, verdict: Verdict, console: Console, most: int | None) -> None:
    console.print(words("", f"{verdict.candidate}: {verdict.outcome.words}"), soft_wrap=True)
    found = findings_of(run, verdict)
    for number, finding in enumerate(found[:most], 1):
        console.print(words(f"  {number}. {finding.claim}{_sure(finding)}"), soft_wrap=True)
        console.print(words(f"     seen: {finding.evidence}"), soft_wrap=True)
        if finding.remedy:
            console.print(words(f"     do: {finding.remedy}"), soft_wrap=True)
        text = line_text(run.sources.get(verdict.candidate, ""), finding.line)
        if text and text not in finding.evidence:
            console.print(words(f"     line {finding.line}: {text}"), soft_wrap=True)
    if most is not None and len(found) > most:
        more = f"  and {len(found) - most} more: crucible explain RUN {verdict.candidate}"
        console.print(words(more), soft_wrap=True)
    if not found:
        console.print(words("  nothing was found to say"), soft_wrap=True)


def _sure(finding: Finding) -> str:
    return "" if finding.confidence == "certain" else f" ({finding.confidence})"
