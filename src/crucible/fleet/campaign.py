"""Campaign: `crucible judge TASKS CANDIDATES --on ...`, from files to tables by way of the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crucible import pipeline, store
from crucible.candidate import find_candidates
from crucible.errors import JudgeError, MisuseError, TaskError
from crucible.fleet.assembly import Wanted, assemble, misuse
from crucible.fleet.engine import Fleet
from crucible.fleet.ledger import Ledger, Status
from crucible.fleet.local import LocalFleet
from crucible.fleet.submission import Submission
from crucible.run import Run
from crucible.task import Task, find_tasks

Say = Callable[[str], None]


def ledger_file() -> Path:
    """The ledger of this user's campaigns."""
    return store.home() / "fleet/ledger.sqlite"


def judge_on(
    where: str,
    tasks: Path,
    candidates: Sequence[Path],
    *,
    workers: int | None = None,
    fresh: bool = False,
    say: Say = lambda text: None,
    **options: Any,
) -> list[Run]:
    """Judges candidates of a task, or of a folder of tasks, with a fleet: `local` (this machine), `ray` (the cluster
    that this machine belongs to, or this machine) or `ray://HOST:PORT`. Options are `pipeline.judge`'s.

    What an earlier call finished is not judged again. Interrupted, or with no worker left, it returns what there is.
    Raises MisuseError for what cannot be used, JudgeError and KeyboardInterrupt where nothing was judged.
    """
    wanted = [_wanted(task, chosen, options) for task, chosen in _matched(tasks, candidates, say)]
    submissions = [one for group in wanted for one in group.submissions]
    ledger = Ledger(ledger_file())
    ids = list(dict.fromkeys(one.id for one in submissions))
    cut_short, trouble = "", ""
    try:
        _drain(where, workers, ledger, submissions, ids, fresh, say)
    except KeyboardInterrupt:
        cut_short, trouble = "interrupted", "interrupted"
    except JudgeError as error:
        cut_short, trouble = "failed", f"the fleet failed: {error}"
    entries = ledger.results(ids)
    ledger.close()
    runs = [run for group in wanted for run in assemble(group, entries, cut_short, trouble)]
    lost = {group.task.name: reason for group in wanted if (reason := misuse(group, entries))}
    for name, reason in lost.items():
        say(f"left out {name}: {reason}")
    if not runs:
        _nothing(cut_short, trouble, lost)
    return _told(runs, len(submissions), cut_short, trouble)


def _matched(tasks: Path, candidates: Sequence[Path], say: Say) -> list[tuple[Task, list[Any]]]:
    found = find_tasks(tasks)
    if len(found) == 1:
        task = Task.load(found[0])
        return [(task, find_candidates(candidates or pipeline.own_candidates(task)))]
    return pipeline.matched(found, find_candidates(candidates), say=say)


def _wanted(task: Task, candidates: Sequence[Any], options: dict[str, Any]) -> Wanted:
    return Wanted(task, candidates, [Submission.of(task, candidate, **options) for candidate in candidates])


def _drain(
    where: str,
    workers: int | None,
    ledger: Ledger,
    submissions: Sequence[Submission],
    ids: Sequence[str],
    fresh: bool,
    say: Say,
) -> None:
    """Until all is settled."""
    fleet = _fleet(where, workers, ledger, submissions[0].kind, ids, say)
    ledger.add(submissions, again=fresh, devices=fleet.devices)
    progress = Progress(say)
    if (status := ledger.status(ids)).settled == status.total:
        progress(status)
        return
    with fleet:
        fleet.drain(ids, progress)


def _fleet(where: str, workers: int | None, ledger: Ledger, device: str, ids: Sequence[str], say: Say) -> Fleet:
    """Raises MisuseError."""
    if where == "local":
        return LocalFleet(ledger, workers, device=device, only=ids, say=say)
    if where == "ray" or where.startswith("ray://"):
        from crucible.fleet.on_ray import RayFleet  # an extra

        return RayFleet(ledger, where, workers, device=device, only=ids, say=say)
    raise MisuseError(f"--on {where}: give local, ray or ray://HOST:PORT")


def _nothing(cut_short: str, trouble: str, lost: dict[str, str]) -> None:
    if cut_short == "interrupted":
        raise KeyboardInterrupt
    if cut_short:
        raise JudgeError(trouble)
    if len(lost) == 1:
        raise TaskError(next(iter(lost.values())))
    raise TaskError(f"none of {len(lost)} tasks could be judged; the reasons stand above")


def _told(runs: list[Run], total: int, cut_short: str, trouble: str) -> list[Run]:
    """A campaign that was cut short says so with some run, also where those that there are are whole."""
    if cut_short and not any(run.cut_short for run in runs):
        known = sum(len(run.verdicts) for run in runs)
        words = f"{trouble}; {known} of {total} candidates of all tasks were judged; the same command goes on"
        return [*runs[:-1], replace(runs[-1], cut_short=cut_short, trouble=words)]
    return runs


class Progress:
    """Of the whole: how many are done and passed, how fast, how long it takes still."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._began: tuple[float, int] | None = None
        self._last: Status | None = None

    def __call__(self, status: Status) -> None:
        """Says so where something has changed."""
        now = self._clock()
        self._began = self._began or (now, status.settled)
        if status != self._last:
            self._last = status
            self._say(words(status, now - self._began[0], status.settled - self._began[1]))


def words(status: Status, elapsed_s: float, since: int) -> str:
    """One line: `since` were settled in the last `elapsed_s`."""
    parts = [f"{status.settled} of {status.total} done", f"{status.passed} passed"]
    parts += [f"{status.failed} failed"] if status.failed else []
    if since and elapsed_s > 0:
        rate = since / elapsed_s
        left_s = (status.total - status.settled) / rate
        parts += [f"{rate * 60:.3g} a minute", f"{_duration(left_s)} left"]
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
