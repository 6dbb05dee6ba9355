"""The terminal table: one row a candidate, then what a reader should know beside it."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from crucible.judge.verdict import Compared, Measured, NotJudged, Verdict
from crucible.run import Run

PLAIN_WIDTH = 140
"""Columns where the output is no terminal: candidate names and verdicts fit on a line or two."""


def show(run: Run, console: Console) -> None:
    """Prints a run's header, table and findings."""
    console.print(Text(_header(run)), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("Rank", "Candidate", "Evaluation"):
        table.add_column(name, no_wrap=name != "Candidate", overflow="fold")
    table.add_column("Runtime", justify="right", no_wrap=True)
    for name in ("Forward", "Backward"):
        table.add_column(name, no_wrap=True)
    table.add_column("Error", justify="right", no_wrap=True)
    table.add_column("Verdict", overflow="fold")
    for rank, verdict in run.ranked:
        table.add_row(*_row(rank, verdict))
    console.print(table)
    _show_notes(run, console)


def _header(run: Run) -> str:
    training = "forward and gradients" if run.task.training else "forward"
    return (
        f"{run.task.name}: {run.task.scale} size, {training}, contract {run.contract.name}\n"
        f"{run.device.name}, torch {run.versions['torch']}; {_clock(run)}; error in multiples of the contract's noise"
    )


def _clock(run: Run) -> str:
    return "runtime by CUDA events" if run.device.kind == "cuda" else "runtime is CPU time"


def _row(rank: int, verdict: Verdict) -> list[Text]:
    judged = not isinstance(verdict.outcome, NotJudged)
    style = ("green" if verdict.evaluation else "red") if judged else "yellow"
    return [
        Text(str(rank) if rank else "-"),
        Text(verdict.candidate),
        Text(str(verdict.evaluation), style=style),
        Text(_runtime(verdict)),
        Text(verdict.forward.words),
        Text(verdict.backward.words),
        Text(_error(verdict)),
        Text(verdict.outcome.words),
    ]


def _runtime(verdict: Verdict) -> str:
    if not verdict.evaluation or not isinstance(verdict.timing, Measured):
        return "-1"
    low, high = verdict.timing.quartiles_ms
    return f"{verdict.timing.median_ms:.4g} ms ±{(high - low) / 2:.2g}"


def _error(verdict: Verdict) -> str:
    checks = [c for c in (verdict.forward, verdict.backward) if isinstance(c, Compared) and c.tensors]
    return f"{max(check.noise_multiple for check in checks):.2g}" if checks else "-"


def _show_notes(run: Run, console: Console) -> None:
    best = run.best
    console.print(Text(f"best: {best}" if best else "best: none passed"), soft_wrap=True)
    for finding in run.findings:
        console.print(Text(f"check: {finding.claim} ({finding.evidence})"), soft_wrap=True)
    for verdict in run.verdicts:
        for finding in verdict.findings:
            console.print(Text(f"{verdict.candidate}: {finding.claim} ({finding.evidence})"), soft_wrap=True)
