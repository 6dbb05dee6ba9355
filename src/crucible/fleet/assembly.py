"""Assembly: what a ledger knows of a task's candidates, as ordinary runs, kept as those are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crucible import hardware, store
from crucible.candidate import Candidate
from crucible.contract import find_contract
from crucible.errors import StoreError, own_error
from crucible.explain.findings import findings
from crucible.fleet.ledger import DONE, FAILED, Entry
from crucible.fleet.submission import Submission
from crucible.hardware import Device
from crucible.judge.verdict.verdict import NotJudged, Verdict
from crucible.run import Run, run_from_json
from crucible.task import Task


@dataclass(frozen=True)
class Wanted:
    """A task and the candidates that shall be judged of it."""

    task: Task
    candidates: Sequence[Candidate]
    submissions: Sequence[Submission]
    """Of each."""


def assemble(wanted: Wanted, entries: dict[str, Entry], cut_short: str = "", trouble: str = "") -> list[Run]:
    """The task's runs, from what is known by id: one, or one for each device and scale that candidates were judged
    with, since their times do not compare. What failed is not judged, and says why; what is not finished is left out,
    and so is a task of which nothing is. `cut_short` and `trouble` are of the fleet that ended before its time."""
    groups: dict[tuple[str, str], list[Run]] = {}
    failed: list[Verdict] = []
    for candidate, submission in zip(wanted.candidates, wanted.submissions, strict=True):
        entry = entries.get(submission.id)
        if entry is not None and entry.state == DONE and entry.run is not None:
            run = _under_its_name(run_from_json(entry.run), candidate)
            groups.setdefault((run.device.name, run.task.scale), []).append(run)
        elif entry is not None and entry.state == FAILED and not entry.misuse:
            failed.append(Verdict(candidate.name, NotJudged(entry.reason or "no reason is known", failed=True)))
    if failed and not groups:
        groups["", ""] = [_nobodys(wanted)]
    runs = [_merged(wanted.task, parts, failed if i == 0 else []) for i, parts in enumerate(groups.values())]
    known = sum(len(run.verdicts) for run in runs)
    if cut_short and known < len(wanted.candidates):
        words = f"{trouble}; {known} of {len(wanted.candidates)} candidates were judged; the same command goes on"
        runs = [replace(run, cut_short=cut_short, trouble=words) for run in runs]
    return [_kept(run) for run in runs]


def misuse(wanted: Wanted, entries: dict[str, Entry]) -> str:
    """Why the task cannot be judged as it was submitted, where that is so."""
    found = [entries[one.id] for one in wanted.submissions if one.id in entries]
    return next((entry.reason for entry in found if entry.state == FAILED and entry.misuse), "")


def _under_its_name(run: Run, candidate: Candidate) -> Run:
    """A run of one candidate, as that is called here: the ledger knows it by content."""
    verdict = replace(run.verdicts[0], candidate=candidate.name)
    return replace(run, verdicts=(verdict,), sources={candidate.name: candidate.source})


def _merged(task: Task, parts: Sequence[Run], failed: Sequence[Verdict]) -> Run:
    """One run of several, with the ground of the one that knows most: each candidate took turns with the anchor."""
    first = parts[0]
    ground = max((part.ground for part in parts), key=lambda g: (len(g.baselines), len(g.floors)))
    gpu = next((part.gpu for part in parts if part.gpu), "")
    settings = {name: getattr(first.task, name) for name in ("scale", "training", "mode")}
    verdicts = tuple(verdict for part in parts for verdict in part.verdicts)
    sources = {name: text for part in parts for name, text in part.sources.items()}
    return replace(
        first,
        task=replace(task, **settings),
        verdicts=(*verdicts, *failed),
        ground=ground,
        gpu=gpu,
        sources=sources,
    )


def _nobodys(wanted: Wanted) -> Run:
    """A run of a task that no worker could judge anything of."""
    rule = find_contract(wanted.submissions[0].arguments.get("contract", "tf32"))
    return Run(wanted.task, rule, Device("cpu", "none: every worker was lost", ""), hardware.versions(), 0, ())


def _kept(run: Run) -> Run:
    """With the why of each verdict, and in the store where that can be written."""
    try:
        run = replace(run, explanations=findings(run))
    except Exception as error:  # noqa: BLE001 - no verdict hangs on it
        run = replace(run, trouble=_joined(run.trouble, f"no explanations: {own_error(error)}"))
    folder = store.RunFolder.new(store.home(), run.task.name)
    try:
        folder.finish(run.to_json())
    except StoreError as error:
        return replace(run, trouble=_joined(run.trouble, str(error)))
    return replace(run, folder=str(folder.path))


def _joined(*troubles: str) -> str:
    return "; ".join(trouble for trouble in troubles if trouble)
