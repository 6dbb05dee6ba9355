"""The terminal tables: who is right and how fast, what it costs, then what a reader should know beside it."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from crucible.judge.verdict.evidence import Costs, Measured, NotMeasured
from crucible.judge.verdict.verdict import NotJudged, Verdict
from crucible.judge.verdict.whose import Whose
from crucible.report import cells
from crucible.report.words import words
from crucible.run import Run

PLAIN_WIDTH = 170
"""Columns where the output is no terminal: candidate names fit on a line, verdicts on one or two."""

SHOWN_KERNELS = 8
"""Of a candidate, by what the compiler says of them; the run's JSON has them all."""

MIN_NAME = 21
"""Columns for a candidate's name before the verdict's words give way."""


def show(run: Run, console: Console) -> None:
    """Prints a run's header, tables and findings."""
    console.print(words(*_header(run)), soft_wrap=True)
    console.print(_verdicts(run))
    console.print(_costs(run))
    _show_notes(run, console)


def _header(run: Run) -> list[str]:
    training = "forward and gradients" if run.task.training else "forward"
    lines = [
        f"{run.task.name}: {run.task.scale} size, {training}, contract {run.contract.name}",
        f"{run.device.name}, torch {run.versions['torch']}; {cells.clock_words(run)}; "
        "error in multiples of the contract's noise",
    ]
    lines += [f"CUDA C++ on the emulator, as {run.gpu}"] if run.gpu else []
    lines += [f"floor, {floor.covers}: {floor.words}" for floor in run.ground.floors]
    return lines


def _verdicts(run: Run) -> Table:
    rivals = cells.rivals(run)
    names = ["Runtime", *(f"Speed-up over\n{rival}" for rival in rivals), *(["Of floor"] if run.ground.floors else [])]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("Rank", no_wrap=True)
    table.add_column("Candidate", overflow="fold", min_width=MIN_NAME)
    table.add_column("Evaluation", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Forward,\nbackward", no_wrap=True)
    table.add_column("Error", justify="right", no_wrap=True)
    table.add_column("Verdict", overflow="fold")
    for rank, verdict in run.ranked:
        table.add_row(*_row(run, str(rank) if rank else "-", verdict, rivals))
    if run.ground.baselines:
        table.add_section()
    for verdict in run.ground.baselines:
        table.add_row(*_row(run, "", verdict, rivals))
    return table


def _row(run: Run, rank: str, verdict: Verdict, rivals: list[str]) -> list[Text]:
    judged = not isinstance(verdict.outcome, NotJudged)
    style = ("green" if verdict.evaluation else "red") if judged else "yellow"
    share = run.ground.share_of_floor(verdict.timing)
    own = [cells.verdict_words(verdict) + _whose(verdict), *_why(run, verdict)]
    told = own if rank else [_baseline_words(verdict)]
    return [
        words(rank),
        words(verdict.candidate),
        words(str(verdict.evaluation), style=style),
        words(cells.runtime(verdict)),
        *(words(cells.speedup(verdict, rival)) for rival in rivals),
        *([words(f"{share:.1%}" if share and verdict.evaluation else "-")] if run.ground.floors else []),
        words(f"{verdict.forward.words}, {verdict.backward.words}"),
        words(cells.error(verdict)),
        words(*told),
    ]


def _whose(verdict: Verdict) -> str:
    """Whose kernels ran, of what has some of its own."""
    whose = verdict.whose
    return f"; {whose.words}" if isinstance(whose, Whose) and whose.own else ""


def _why(run: Run, verdict: Verdict) -> list[str]:
    """The first finding of what did not pass, and of the best, on a line of its own."""
    found = run.explanations.get(verdict.candidate, ())
    wanted = found and (not verdict.evaluation or verdict.candidate == run.best)
    return [f"why: {found[0].claim}"] if wanted else []


def _baseline_words(verdict: Verdict) -> str:
    return "baseline" if verdict.evaluation else f"baseline, not compared: {verdict.outcome.words}"


def _costs(run: Run) -> Table:
    """What each took of the judge's time, and what a call takes beside time."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("Costs", overflow="fold", min_width=MIN_NAME)
    names = ["Judged in", "Build", "First call", "Peak memory", "Allocations", "Kernels"]
    names += ["Forward alone"] if run.task.training else []
    names += ["CUDA graph"] if run.device.kind == "cuda" else []
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for verdict in (*(v for _, v in run.ranked), *run.ground.baselines):
        table.add_row(*(words(cell) for cell in _cost_row(run, verdict)))
    return table


def _cost_row(run: Run, verdict: Verdict) -> list[str]:
    costs = verdict.costs
    row = ["-"] * 4
    if isinstance(costs, Costs):
        launches = str(costs.launches) if run.device.kind == "cuda" else "-"
        row = [f"{costs.first_call_s:.2g} s", cells.size(costs.peak_bytes), str(costs.allocations), launches]
    further = {(t.covers, t.how): t for t in verdict.further if isinstance(t, Measured)}
    replays = [covers for covers, how in further if how == "graph replay"]
    row += [cells.medians([further.get(("forward", "as called"))])] if run.task.training else []
    row += [cells.medians([further[covers, "graph replay"] for covers in replays])] if run.device.kind == "cuda" else []
    return [verdict.candidate, f"{verdict.total_s:.1f} s", f"{verdict.build_s:.1f} s", *row]


def _show_notes(run: Run, console: Console) -> None:
    reasons = dict.fromkeys(v.timing.reason for v in run.passed if isinstance(v.timing, NotMeasured))
    none = f"none was timed: {'; '.join(reasons)}" if reasons else "none passed"
    console.print(words(f"best: {run.best or none}"), soft_wrap=True)
    for finding in run.findings:
        console.print(words(f"check: {finding.claim} ({finding.evidence})"), soft_wrap=True)
    for verdict in run.verdicts:
        for one in verdict.resources[:SHOWN_KERNELS]:
            console.print(words(f"{verdict.candidate}: {one.words}"), soft_wrap=True)
    for verdict in (*run.verdicts, *run.ground.baselines):
        for finding in verdict.findings:
            console.print(words(f"{verdict.candidate}: {finding.claim} ({finding.evidence})"), soft_wrap=True)
