"""The terminal's report: one line a candidate, why the best is where it is and the refused are refused, then notes.

The table takes the columns that fit: names, verdicts and runtimes always, what they are held against as far as there is
room. `verbose` has all of them, costs, what kernels take of a GPU, and every note.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from crucible.judge.verdict.evidence import Costs, Measured, NotMeasured
from crucible.judge.verdict.modelled import Modelled
from crucible.judge.verdict.verdict import NotJudged, Verdict
from crucible.judge.verdict.whose import Whose
from crucible.legible import counted, line
from crucible.report import cells
from crucible.report.names import shortened
from crucible.report.words import words
from crucible.run import Run

PLAIN_WIDTH = 100
"""Columns where the output is no terminal and COLUMNS says nothing."""
LEAST_WIDTH = 60
"""A narrower terminal breaks lines."""
NAMES_PART = 3
"""Of the width a third, for names: longer ones are shortened in their middle."""
LEAST_VERDICT, MOST_BRIEF = 9, 26
"""Columns that a verdict has at least, and may keep others out for."""
INDENT = 4
GAP = 2
SHOWN_KERNELS = 8
"""Of a candidate, by what the compiler says of them; the run's JSON has them all."""
MOST_WHYS = 8
"""Refused candidates whose reasons are told at once."""


@dataclass(frozen=True)
class Column:
    """One column of the table: what stands in it, line by line."""

    name: str
    cells: tuple[str, ...]
    right: bool = False
    room: int = 0
    """Terminal columns, where these are not what its texts need."""

    @property
    def width(self) -> int:
        return self.room or max(cell_len(text) for text in (*self.name.split("\n"), *self.cells))

    @property
    def taken(self) -> int:
        return self.width + GAP


Entry = tuple[str, Verdict]
"""A rank as it is shown, and whose it is."""
VERDICT = "Verdict"


def plain_width() -> int:
    """Of an output that is no terminal."""
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isascii() and asked.isdigit() and int(asked) >= LEAST_WIDTH else PLAIN_WIDTH


def show(run: Run, console: Console, *, verbose: bool = False) -> None:
    """Prints a run's header, table, reasons and notes."""
    for text in _header(run):
        _paragraph(console, text)
    entries = _entries(run)
    if not entries:
        _paragraph(console, "no verdicts: the run ended before the first")
        return
    first, *others = _groups(run, entries, max(LEAST_WIDTH, console.width))
    for columns in (first, *others) if verbose else (first,):
        console.print()
        console.print(_table(columns, entries, len(run.verdicts)))
    console.print()
    for text in _footer(run):
        _paragraph(console, text, style="dim")
    _paragraph(console, f"best: {_best(run)}", style="bold")
    _show_whys(run, console, verbose, _shown_whole(first, entries))
    for finding in run.findings:
        _paragraph(console, f"check: {finding.claim} ({finding.evidence})")
    if verbose:
        for note in _notes(run):
            _paragraph(console, note)
    elif hidden := len(list(_notes(run))):
        more = f"costs, occupancy, {counted(hidden, 'note')}: --verbose; all of one: crucible explain latest NAME"
        _paragraph(console, more, style="dim")


def _header(run: Run) -> list[str]:
    training = "forward and gradients" if run.task.training else "forward"
    emulated = f"; CUDA C++ on the emulator, as {run.gpu}" if run.gpu else ""
    lines = [
        f"{run.task.name}: {run.task.scale} size, {training}, contract {run.contract.name}",
        f"{run.device.name}, torch {run.versions.get('torch', '-')}{emulated}",
    ]
    lines += [f"floor, {floor.covers}: {floor.words}" for floor in run.ground.floors]
    return lines


def _groups(run: Run, entries: Sequence[Entry], width: int) -> list[list[Column]]:
    """All columns, in tables that fit the width; the first is the one that is always shown."""
    rows = [verdict for _, verdict in entries]
    names = [line(verdict.candidate) for verdict in rows]
    short = dict(zip(names, shortened(names, width // NAMES_PART), strict=True))
    name = Column("Candidate", tuple(short[name] for name in names))
    own = [
        Column("Rank", tuple(rank for rank, _ in entries)),
        name,
        Column("Evaluation", tuple(str(verdict.evaluation) for verdict in rows)),
        Column("Runtime", tuple(cells.time(run, verdict) for verdict in rows), right=True),
    ]
    told = [[line(text) for text in _told(run, rank, verdict)] for rank, verdict in entries]
    least = min(MOST_BRIEF, max(cell_len(texts[-1]) for texts in told))
    further, costs = _further(run, rows), _costs(run, rows)
    chosen, beyond = _fitting(further, width - sum(column.taken for column in own) - least)
    room = max(LEAST_VERDICT, width - sum(column.taken for column in (*own, *chosen)))
    fits = tuple(next((text for text in texts if cell_len(text) <= room), texts[-1]) for texts in told)
    groups, rest = [[*own, *chosen, Column(VERDICT, fits, room=room)]], [*beyond, *costs]
    while rest:
        chosen, beyond = _fitting(rest, width - name.taken)
        chosen, beyond = (chosen, beyond) if chosen else (rest[:1], rest[1:])
        groups.append([name, *chosen])
        rest = beyond
    return groups


def _fitting(columns: Sequence[Column], left: int) -> tuple[list[Column], list[Column]]:
    """Those that have room, in order, and the others."""
    chosen: list[Column] = []
    beyond: list[Column] = []
    for column in columns:
        fits = column.taken <= left
        (chosen if fits else beyond).append(column)
        left -= column.taken if fits else 0
    return chosen, beyond


def _shown_whole(columns: Sequence[Column], entries: Sequence[Entry]) -> set[str]:
    """Whose verdict stands in the table to its end."""
    cells_of = zip(columns[-1].cells, entries, strict=True)
    room = columns[-1].room
    return {v.candidate for text, (_, v) in cells_of if cell_len(text) <= room and line(v.outcome.words) in text}


def _entries(run: Run) -> list[Entry]:
    """Baselines last."""
    return [*cells.ranked(run), *(("", verdict) for verdict in run.ground.baselines)]


def _further(run: Run, rows: Sequence[Verdict]) -> list[Column]:
    """What has room, the most wanted first."""
    found = [
        Column(f"over\n{rival}", tuple(cells.short_speedup(verdict, rival) for verdict in rows), True)
        for rival in cells.rivals(run)
    ]
    if run.ground.floors:
        shares = (run.ground.share_of_floor(v.timing) if v.evaluation else 0.0 for v in rows)
        found.append(Column("Of\nfloor", tuple(f"{share:.1%}" if share else "-" for share in shares), True))
    found.append(Column("Error", tuple(cells.error(verdict) for verdict in rows), True))
    found.append(Column("Forward,\nbackward", tuple(f"{v.forward.words}, {v.backward.words}" for v in rows)))
    return found


def _told(run: Run, rank: str, verdict: Verdict) -> list[str]:
    """The verdict, the longest text first: the first one that has room is shown."""
    if not rank:
        refused = f"baseline, not compared: {verdict.outcome.words}"
        return ["baseline"] if verdict.evaluation else [refused, "baseline, not compared"]
    modelled = verdict.candidate in run.modelled_ranks
    own = cells.verdict_words(verdict).removesuffix(", not timed") if modelled else cells.verdict_words(verdict)
    whole = own + _whose(verdict)
    shorter = [whole.rpartition(", ")[0], own] if verdict.evaluation and whole != own else []
    return [whole, *shorter, own.partition(": ")[0]]


def _whose(verdict: Verdict) -> str:
    """Whose kernels ran, of what has some of its own."""
    whose = verdict.whose
    return f"; {whose.words}" if isinstance(whose, Whose) and whose.own else ""


def _table(columns: Sequence[Column], entries: Sequence[Entry], candidates: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(column.name, justify=justify, width=column.width, no_wrap=True, overflow="ellipsis")
    for i, (_, verdict) in enumerate(entries):
        if i == candidates:
            table.add_section()
        styles = {"Evaluation": _style(verdict), "Candidate": "bold" if i == 0 and verdict.evaluation else ""}
        table.add_row(*(words(column.cells[i], style=styles.get(column.name, "")) for column in columns))
    return table


def _style(verdict: Verdict) -> str:
    return "yellow" if isinstance(verdict.outcome, NotJudged) else "green" if verdict.evaluation else "red"


def _footer(run: Run) -> list[str]:
    """How the table is to be read."""
    beside = "speed-up in turns with it, ± half its 95 % interval (its own row is of a race among baselines)"
    against = f"; over a baseline: {beside}" if run.ground.baselines else ""
    lines = [f"{cells.clock_words(run)}{against}; error in multiples of the contract's noise"]
    lines += [model] if (model := cells.model_words(run)) else []
    return lines


def _best(run: Run) -> str:
    first = [name for name, rank in run.modelled_ranks.items() if rank == 1]
    by_model = f"by modelled time {', '.join(first[:3])}{' and others' if len(first) > 3 else ''}" if first else ""
    reasons = dict.fromkeys(v.timing.reason for v in run.passed if isinstance(v.timing, NotMeasured))
    none = f"none was timed: {'; '.join(reasons)}" if reasons else "none passed"
    counts = Counter("passed" if v.evaluation else v.outcome.kind.replace("-", " ") for v in run.verdicts)
    total = f" ({', '.join(f'{number} {kind}' for kind, number in counts.most_common())})" if len(counts) > 1 else ""
    return (f"{run.best}; {by_model}" if run.best and by_model else run.best or by_model or none) + total


def _show_whys(run: Run, console: Console, verbose: bool, whole: set[str]) -> None:
    """Of the best its first finding; of the refused what was seen, and its cause."""
    told = [verdict for verdict in (*(v for _, v in run.ranked), *run.ground.baselines) if _is_told(run, verdict)]
    told = [verdict for verdict in told if verdict.candidate not in whole or _cause(run, verdict)]
    shown = told if verbose else told[:MOST_WHYS]
    for verdict in shown:
        cause = _cause(run, verdict)
        said = "" if verdict.candidate == run.best and verdict.evaluation else cells.verdict_words(verdict)
        _paragraph(console, f"{verdict.candidate}: {said or cause}")
        if said and cause:
            _paragraph(console, f"why: {cause}", indent=INDENT)
    if len(told) > len(shown):
        more = f"{counted(len(told) - len(shown), 'more reason')}: --verbose, or crucible explain latest"
        _paragraph(console, more, style="dim")


def _cause(run: Run, verdict: Verdict) -> str:
    """The first finding, where it says more than the verdict."""
    found = run.explanations.get(verdict.candidate, ())
    return found[0].claim if found and found[0].claim not in verdict.outcome.words else ""


def _is_told(run: Run, verdict: Verdict) -> bool:
    if verdict.candidate == run.best:
        return bool(run.explanations.get(verdict.candidate))
    return not verdict.evaluation or cells.verdict_words(verdict) not in ("passed", "passed, not timed")


def _paragraph(console: Console, text: str, *, indent: int = 0, style: str = "") -> None:
    """Lines no wider than the terminal; those after the first stand further in."""
    width = max(LEAST_WIDTH, console.width)
    first, *_ = words(text).wrap(console, width - indent) or [words("")]
    rest = words(line(text)[len(first.plain) :].strip())
    console.print(words(" " * indent + first.plain.rstrip(), style=style))
    for more in rest.wrap(console, width - indent - INDENT) if rest.plain else ():
        console.print(words(" " * (indent + INDENT) + more.plain.rstrip(), style=style))


def _costs(run: Run, rows: Sequence[Verdict]) -> list[Column]:
    """Speed-ups with their intervals; what each took of the judge's time, and what a call takes beside time."""
    names = ["Judged in", "Build", "First call", "Peak memory", "Allocations", "Kernels"]
    names += ["Forward alone"] if run.task.training else []
    names += ["CUDA graph"] if run.device.kind == "cuda" else []
    costs = zip(*(_cost_row(run, verdict) for verdict in rows), strict=True)
    found = [
        Column(f"over\n{rival}, 95 %", tuple(cells.speedup(verdict, rival) for verdict in rows), True)
        for rival in cells.rivals(run)
    ]
    return found + [Column(name, tuple(texts), True) for name, texts in zip(names, costs, strict=False)]


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
    return [f"{verdict.total_s:.1f} s", f"{verdict.build_s:.1f} s", *row]


def _notes(run: Run) -> Iterator[str]:
    """What is known of candidates beside their verdicts."""
    for verdict in run.verdicts:
        if isinstance(verdict.modelled, Modelled):
            yield f"{verdict.candidate}: {verdict.modelled.words}"
        for one in verdict.resources[:SHOWN_KERNELS]:
            yield f"{verdict.candidate}: {one.words}"
    for verdict in (*run.verdicts, *run.ground.baselines):
        for finding in verdict.findings:
            yield f"{verdict.candidate}: {finding.claim} ({finding.evidence})"
