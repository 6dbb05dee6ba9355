"""Two runs of one task: whose verdict changed, and how their runtimes compare."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from crucible.judge.timing.baselines import ANCHOR
from crucible.judge.verdict.evidence import Measured
from crucible.judge.verdict.modelled import Modelled
from crucible.judge.verdict.verdict import Verdict
from crucible.legible import counted
from crucible.report import cells
from crucible.report.words import words
from crucible.run import Run
from crucible.spread import quotient


@dataclass(frozen=True)
class Difference:
    """One candidate in two runs."""

    name: str
    before: str
    """What became of it: the outcome in short; `-` where the run did not have it."""
    after: str
    times: str
    """Runtime before, runtime after."""
    ratio: str
    """How many times as long it takes now, with the 95 % interval where there is one; `tie`; `-` without two times."""
    changed: bool
    """Whether the verdict is another, or a time beyond a tie."""
    better: bool | None
    """Passes now, or is faster; None where neither is better."""


def differences(before: Run, after: Run) -> list[Difference]:
    """Of every candidate of either, in the later run's order."""
    earlier = {verdict.candidate: verdict for verdict in before.verdicts}
    later = {verdict.candidate: verdict for _, verdict in after.ranked}
    names = [*later, *(name for name in earlier if name not in later)]
    return [_difference(name, earlier.get(name), later.get(name), _comparable(before, after)) for name in names]


def show(before: Run, after: Run, console: Console, *, heading: str = "", everything: bool = False) -> None:
    """Prints what changed, or all candidates with `everything`, and what else the runs differ in."""
    found = differences(before, after)
    shown = [one for one in found if one.changed or everything]
    same = counted(len(found) - sum(one.changed for one in found), "candidate")
    title = f"{heading or after.task.name}: {sum(one.changed for one in found)} changed, {same} as before"
    console.print(words(title, style="bold"))
    for one in setting(before, after):
        console.print(words(f"the runs differ in {one}", style="yellow"), soft_wrap=True)
    if shown:
        console.print(_table(shown))


def setting(before: Run, after: Run) -> list[str]:
    """What else than the candidates is another: `device: A100, then H200`."""
    pairs = {
        "task": (before.task.name, after.task.name),
        "device": (before.device.name, after.device.name),
        "emulated GPU": (before.gpu, after.gpu),
        "contract": (before.contract.name, after.contract.name),
        "size": (before.task.scale, after.task.scale),
        "gradients": (str(before.task.training), str(after.task.training)),
        "torch": (before.versions.get("torch", "-"), after.versions.get("torch", "-")),
    }
    return [f"{name}: {one or '-'}, then {two or '-'}" for name, (one, two) in pairs.items() if one != two]


def _comparable(before: Run, after: Run) -> bool:
    """Whether a time of one says anything beside a time of the other."""
    return (before.device.name, before.task.scale, before.task.training) == (
        after.device.name,
        after.task.scale,
        after.task.training,
    )


def _difference(name: str, before: Verdict | None, after: Verdict | None, comparable: bool) -> Difference:
    one, two = (_short(verdict) for verdict in (before, after))
    ratio, faster = _ratio(before, after) if before and after and comparable else ("-", None)
    times = " → ".join(_time(verdict) for verdict in (before, after))
    passes = [bool(verdict and verdict.evaluation) for verdict in (before, after)]
    better = passes[1] if passes[0] != passes[1] and before and after else faster
    return Difference(name, one, two, times, ratio, one != two or faster is not None, better)


def _short(verdict: Verdict | None) -> str:
    return "-" if verdict is None else cells.verdict_words(verdict).partition(": ")[0]


def _time(verdict: Verdict | None) -> str:
    if verdict is None or not verdict.evaluation:
        return "-"
    if isinstance(verdict.timing, Measured):
        return f"{verdict.timing.median_ms:.4g} ms"
    return f"~{verdict.modelled.time_ms:.3g} ms" if isinstance(verdict.modelled, Modelled) else "-"


def _ratio(before: Verdict, after: Verdict) -> tuple[str, bool | None]:
    """In words, and whether it is faster now; None for a tie, and for what cannot be compared. Two times of one clock
    are compared through eager, which both took turns with: a machine that is slower today is so for both."""
    if not (before.evaluation and after.evaluation):
        return "-", None
    if isinstance(before.timing, Measured) and isinstance(after.timing, Measured):
        return _measured_ratio(before.timing, after.timing)
    if isinstance(before.modelled, Modelled) and isinstance(after.modelled, Modelled):
        if before.modelled.at != after.modelled.at or before.modelled.gpu != after.modelled.gpu:
            return "-", None
        ratio = after.modelled.time_ms / before.modelled.time_ms
        return ("tie", None) if abs(ratio - 1) < 0.01 else (f"{ratio:.3g} modelled", ratio < 1)
    return "-", None


def _measured_ratio(before: Measured, after: Measured) -> tuple[str, bool | None]:
    if (before.covers, before.clock) != (after.covers, after.clock):
        return "-", None
    rounds = [timing.speedup_over(ANCHOR) for timing in (before, after)]
    if rounds[0] and rounds[1] and min((*rounds[0].rounds, *rounds[1].rounds), default=0.0) > 0:
        found = quotient(rounds[0].rounds, rounds[1].rounds).reported
        told = f"{found.value:.3g} [{found.low:.3g}, {found.high:.3g}]"
        return (f"tie {told}", None) if found.holds_one else (told, found.value < 1)
    if before.median_ms <= 0 or after.median_ms <= 0:
        return "-", None
    ratio = after.median_ms / before.median_ms
    apart = before.quartiles_ms[1] < after.quartiles_ms[0] or after.quartiles_ms[1] < before.quartiles_ms[0]
    return (f"{ratio:.3g}, without an interval", ratio < 1) if apart else (f"tie {ratio:.3g}", None)


def _table(found: list[Difference]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("Candidate", overflow="fold", min_width=12)
    for name in ("Before", "After"):
        table.add_column(name, overflow="fold")
    table.add_column("Runtime", no_wrap=True)
    table.add_column("Times as long", no_wrap=True)
    for one in found:
        style = "" if one.better is None else "green" if one.better else "red"
        texts = (one.name, one.before, one.after, one.times, one.ratio)
        table.add_row(*(words(text, style=style if i in (2, 4) else "") for i, text in enumerate(texts)))
    return table
