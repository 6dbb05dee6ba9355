"""The terminal tables: who is right and how fast, what it costs, then what a reader should know beside it."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from crucible.judge.baselines import ANCHOR
from crucible.judge.evidence import Compared, Costs, Measured, NotMeasured, Speedup, Timing
from crucible.judge.verdict import NotJudged, Verdict
from crucible.run import Run

PLAIN_WIDTH = 170
"""Columns where the output is no terminal: candidate names fit on a line, verdicts on one or two."""

SHOWN_KERNELS = 8
"""Of a candidate, by what the compiler says of them; the run's JSON has them all."""

MIN_NAME = 21
"""Columns for a candidate's name before the verdict's words give way."""


def show(run: Run, console: Console) -> None:
    """Prints a run's header, tables and findings."""
    console.print(Text(_header(run)), soft_wrap=True)
    console.print(_verdicts(run))
    console.print(_costs(run))
    _show_notes(run, console)


def _header(run: Run) -> str:
    training = "forward and gradients" if run.task.training else "forward"
    lines = [
        f"{run.task.name}: {run.task.scale} size, {training}, contract {run.contract.name}",
        f"{run.device.name}, torch {run.versions['torch']}; {_clock(run)}; error in multiples of the contract's noise",
    ]
    lines += [f"CUDA C++ on the emulator, as {run.gpu}"] if run.gpu else []
    lines += [f"floor, {floor.covers}: {floor.words}" for floor in run.ground.floors]
    return "\n".join(lines)


def _clock(run: Run) -> str:
    covers = "forward+backward" if run.task.training else "forward"
    by = "by CUDA events" if run.device.kind == "cuda" else "in CPU time"
    return f"runtime of {covers} {by}, ± half its interquartile range"


def _verdicts(run: Run) -> Table:
    best = _best_baseline(run)
    rivals = [ANCHOR, *([best] if best and best != ANCHOR else [])] if run.ground.baselines else []
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
    return [
        Text(rank),
        Text(verdict.candidate),
        Text(str(verdict.evaluation), style=style),
        Text(_runtime(verdict)),
        *(Text(_speedup(verdict, rival)) for rival in rivals),
        *([Text(f"{share:.1%}" if share and verdict.evaluation else "-")] if run.ground.floors else []),
        Text(f"{verdict.forward.words}, {verdict.backward.words}"),
        Text(_error(verdict)),
        Text(_words(verdict) + _why(run, verdict) if rank else _baseline_words(verdict)),
    ]


def _why(run: Run, verdict: Verdict) -> str:
    """The first finding of what did not pass, and of the best, on a line of its own."""
    found = run.explanations.get(verdict.candidate, ())
    wanted = found and (not verdict.evaluation or verdict.candidate == run.best)
    return f"\nwhy: {found[0].claim}" if wanted else ""


def _words(verdict: Verdict) -> str:
    untimed = verdict.evaluation and isinstance(verdict.timing, NotMeasured)
    return f"{verdict.outcome.words}, not timed" if untimed else verdict.outcome.words


def _baseline_words(verdict: Verdict) -> str:
    return "baseline" if verdict.evaluation else f"baseline, not compared: {verdict.outcome.words}"


def _best_baseline(run: Run) -> str:
    """The fastest one that is right; empty when none is."""
    right = [v for v in run.ground.baselines if v.runtime_ms > 0]
    return min(right, key=lambda v: v.runtime_ms).candidate if right else ""


def _runtime(verdict: Verdict) -> str:
    if not verdict.evaluation or not isinstance(verdict.timing, Measured):
        return "-1"
    low, high = verdict.timing.quartiles_ms
    return f"{verdict.timing.median_ms:.4g} ms ±{(high - low) / 2:.2g}"


def _speedup(verdict: Verdict, rival: str) -> str:
    if not verdict.evaluation or not isinstance(verdict.timing, Measured):
        return "-"
    if verdict.candidate == rival and not verdict.timing.speedup_over(rival):
        return "1"
    found = verdict.timing.speedup_over(rival)
    return _interval(found) if found else "-"


def _interval(found: Speedup) -> str:
    low, high = found.interval
    return f"{found.ratio:.3g} [{low:.3g}, {high:.3g}]"


def _error(verdict: Verdict) -> str:
    checks = [c for c in (verdict.forward, verdict.backward) if isinstance(c, Compared) and c.tensors]
    return f"{max(check.noise_multiple for check in checks):.2g}" if checks else "-"


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
        table.add_row(*(Text(cell) for cell in _cost_row(run, verdict)))
    return table


def _cost_row(run: Run, verdict: Verdict) -> list[str]:
    costs = verdict.costs
    cells = ["-"] * 4
    if isinstance(costs, Costs):
        launches = str(costs.launches) if run.device.kind == "cuda" else "-"
        cells = [f"{costs.first_call_s:.2g} s", _bytes(costs.peak_bytes), str(costs.allocations), launches]
    further = {(t.covers, t.how): t for t in verdict.further if isinstance(t, Measured)}
    replays = [covers for covers, how in further if how == "graph replay"]
    cells += [_medians([further.get(("forward", "as called"))])] if run.task.training else []
    cells += [_medians([further[covers, "graph replay"] for covers in replays])] if run.device.kind == "cuda" else []
    return [verdict.candidate, f"{verdict.total_s:.1f} s", f"{verdict.build_s:.1f} s", *cells]


def _medians(timings: Sequence[Timing | None]) -> str:
    """`0.031 ms`; a forward's where both it and forward+backward are short enough to be replayed: `0.03, 0.1 ms`."""
    found = [f"{timing.median_ms:.3g}" for timing in timings if isinstance(timing, Measured)]
    return f"{', '.join(found)} ms" if found else "-"


def _bytes(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{size:.3g} {unit}"


def _show_notes(run: Run, console: Console) -> None:
    reasons = dict.fromkeys(v.timing.reason for v in run.passed if isinstance(v.timing, NotMeasured))
    none = f"none was timed: {'; '.join(reasons)}" if reasons else "none passed"
    console.print(Text(f"best: {run.best or none}"), soft_wrap=True)
    for finding in run.findings:
        console.print(Text(f"check: {finding.claim} ({finding.evidence})"), soft_wrap=True)
    for verdict in run.verdicts:
        for one in verdict.resources[:SHOWN_KERNELS]:
            console.print(Text(f"{verdict.candidate}: {one.words}"), soft_wrap=True)
    for verdict in (*run.verdicts, *run.ground.baselines):
        for finding in verdict.findings:
            console.print(Text(f"{verdict.candidate}: {finding.claim} ({finding.evidence})"), soft_wrap=True)
