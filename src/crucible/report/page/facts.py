"""What the page says, as records that a template only has to write down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crucible import shapes
from crucible.judge.verdict.evidence import Compared, Costs, Finding, Measured, TensorError
from crucible.judge.verdict.modelled import Modelled
from crucible.judge.verdict.trials import SmallestFailing
from crucible.judge.verdict.verdict import NotJudged, Verdict
from crucible.report import cells
from crucible.report.page.error_maps import MapOfTensor, maps_of
from crucible.report.page.kernels import Timeline, timeline
from crucible.report.page.roofline import Plot, plot
from crucible.report.page.source import Source, source_of
from crucible.report.why import findings_of
from crucible.run import Run

FEW = 12
"""Candidates that are seen at a glance."""


@dataclass(frozen=True)
class Bar:
    """A runtime beside the slowest one, in percent of the bar's width."""

    floor: float
    """The part that no fusion saves; 0 where it is not known."""
    beyond: float
    """The rest."""


@dataclass(frozen=True)
class Reason:
    """A finding, and the lines around the one that it concerns."""

    finding: Finding
    excerpt: tuple[tuple[int, str], ...]
    """Numbers and texts; empty where no line is concerned, or an earlier finding has shown it."""


@dataclass(frozen=True)
class Entry:
    """A candidate or a baseline."""

    id: str
    """Of its card; never made from its name."""
    verdict: Verdict
    rank: str
    """`1`, `m1` by modelled time, `-` for what has none, empty for a baseline."""
    state: str
    """`right`, `wrong` or `unjudged`."""
    words: str
    """The verdict."""
    runtime: str
    bar: Bar | None
    speedups: tuple[tuple[str, str], ...]
    """BaselineRuns, and the ratio with its interval."""
    of_floor: str
    error: str
    reasons: tuple[Reason, ...]
    numbers: tuple[tuple[str, str], ...]
    """What a call takes beside time, and what the judge took."""
    tensors: tuple[tuple[str, TensorError], ...]
    """What was compared: the case in words, the errors."""
    trials: tuple[tuple[str, str], ...]
    """Shapes at which a candidate that fails was tried, and what came of it."""
    maps: tuple[MapOfTensor, ...]
    timeline: Timeline | None
    source: Source | None

    @property
    def name(self) -> str:
        return self.verdict.candidate

    @property
    def cause(self) -> Finding | None:
        """The first finding."""
        return self.reasons[0].finding if self.reasons else None


@dataclass(frozen=True)
class Section:
    """One run."""

    id: str
    run: Run
    settings: tuple[tuple[str, str], ...]
    rivals: tuple[str, ...]
    candidates: tuple[Entry, ...]
    baselines: tuple[Entry, ...]
    plots: tuple[Plot, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (*self.candidates, *self.baselines)

    @property
    def is_long(self) -> bool:
        """Whether a reader wants to look for some of its candidates."""
        return len(self.candidates) > FEW

    @cached_property
    def best(self) -> Entry | None:
        return next((entry for entry in self.candidates if entry.name == self.run.best), None)

    @property
    def rival(self) -> int:
        """Which entry the first candidate is compared with until the reader chooses: the fastest baseline, or else
        the second entry."""
        names = [entry.name for entry in self.entries]
        return names.index(self.rivals[-1]) if self.rivals and self.rivals[-1] in names else min(1, len(names) - 1)


@dataclass(frozen=True)
class Page:
    """All runs."""

    title: str
    sections: tuple[Section, ...]


def page_of(runs: Sequence[Run]) -> Page:
    """The page of these runs, in their order."""
    sections = tuple(section_of(run, f"t{number}") for number, run in enumerate(runs, 1))
    title = runs[0].task.name if len(runs) == 1 else f"{len(runs)} tasks"
    return Page(title, sections)


def section_of(run: Run, name: str) -> Section:
    """One run; its parts' ids begin with `name`."""
    slowest = max((v.runtime_ms for v in (*run.verdicts, *run.ground.baselines)), default=0.0)
    ranked = cells.ranked(run)
    rows = [*ranked, *(("", verdict) for verdict in run.ground.baselines)]
    entries = [_entry(run, f"{name}c{i}", rank, verdict, slowest) for i, (rank, verdict) in enumerate(rows, 1)]
    return Section(
        name,
        run,
        _settings(run),
        tuple(cells.rivals(run)),
        tuple(entries[: len(ranked)]),
        tuple(entries[len(ranked) :]),
        tuple(found for floor in run.ground.floors if (found := plot(run, floor)) is not None),
    )


def _entry(run: Run, name: str, rank: str, verdict: Verdict, slowest: float) -> Entry:
    judged = not isinstance(verdict.outcome, NotJudged)
    share = run.ground.share_of_floor(verdict.timing) if verdict.evaluation else 0.0
    findings = findings_of(run, verdict) if rank else verdict.findings
    source = source_of(run.sources.get(verdict.candidate, ""), findings, getattr(verdict.outcome, "line", 0))
    return Entry(
        name,
        verdict,
        rank,
        ("right" if verdict.evaluation else "wrong") if judged else "unjudged",
        cells.verdict_words(verdict),
        cells.time(run, verdict),
        _bar(verdict, share, slowest),
        tuple((rival, cells.speedup(verdict, rival)) for rival in cells.rivals(run)),
        f"{share:.1%}" if share else "-",
        cells.error(verdict),
        _reasons(findings, source),
        _numbers(run, verdict),
        _tensors(verdict),
        _trials(verdict),
        maps_of(verdict, name),
        timeline(verdict.costs),
        source,
    )


def _bar(verdict: Verdict, share: float, slowest: float) -> Bar | None:
    if verdict.runtime_ms <= 0 or slowest <= 0:
        return None
    width = 100 * verdict.runtime_ms / slowest
    floor = width * min(1.0, share)
    return Bar(round(floor, 2), round(width - floor, 2))


def _reasons(findings: Sequence[Finding], source: Source | None) -> tuple[Reason, ...]:
    seen: set[int] = set()
    reasons = []
    for finding in findings:
        new = finding.line not in seen
        seen.add(finding.line)
        reasons.append(Reason(finding, source.around(finding.line) if source and new else ()))
    return tuple(reasons)


def _settings(run: Run) -> tuple[tuple[str, str], ...]:
    judged = "forward and gradients" if run.task.training else "forward"
    versions = ", ".join(f"{name} {_version(text)}" for name, text in run.versions.items() if text != "-")
    rows = [
        ("Device", run.device.name + (f", driver {run.device.driver}" if run.device.kind == "cuda" else "")),
        ("Judged", f"{judged}, {run.task.scale} size, contract {run.contract.name}, {run.task.mode} mode"),
        ("Runtime", cells.clock_words(run).removeprefix("runtime of ")),
        ("Versions", versions),
    ]
    if model := cells.model_words(run):
        rows.append(("Modelled", model.removeprefix("~ modelled, ")))
    if run.gpu:
        rows.insert(1, ("Emulated", f"CUDA C++ on the emulator, as {run.gpu}"))
    rows += [(f"Floor, {floor.covers}", floor.words) for floor in run.ground.floors]
    return tuple(rows)


def _version(text: str) -> str:
    """`13.0` of `Cuda compilation tools, release 13.0, V13.0.88`; the first number of what says more than one."""
    words = [word.strip(",()") for word in text.split()]
    return next((word for word in words if word[:1].isdigit()), text)


def _numbers(run: Run, verdict: Verdict) -> tuple[tuple[str, str], ...]:
    costs, rows = verdict.costs, []
    if isinstance(costs, Costs):
        rows = [
            ("First call", f"{costs.first_call_s:.2g} s"),
            ("Peak memory", cells.size(costs.peak_bytes)),
            ("Allocations", str(costs.allocations)),
        ]
        rows += [("Kernels", str(costs.launches))] if run.device.kind == "cuda" else []
    for timing in verdict.further:
        if isinstance(timing, Measured):
            rows.append((f"{timing.covers.capitalize()}, {timing.how}", cells.medians([timing])))
    if isinstance(verdict.modelled, Modelled):
        rows += [("Modelled, not measured", f"{verdict.modelled.time_ms:.3g} ms at {verdict.modelled.at}")]
    rows += [("Build", f"{verdict.build_s:.1f} s"), ("Judged in", f"{verdict.total_s:.1f} s")]
    timing = verdict.timing
    if isinstance(timing, Measured) and (slowed := getattr(timing.clocks, "slowed_by", ())):
        rows.append(("Slowed by", ", ".join(slowed)))
    return tuple(rows)


def _tensors(verdict: Verdict) -> tuple[tuple[str, TensorError], ...]:
    checks = [check for check in (verdict.forward, verdict.backward) if isinstance(check, Compared)]
    return tuple((cells.case(check, tensor.case), tensor) for check in checks for tensor in check.tensors)


def _trials(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    found = verdict.smallest_failing
    return tuple((shapes.words(dict(t.at)), t.came) for t in found.trials) if isinstance(found, SmallestFailing) else ()
