"""Records: what a run has come to so far, and what is kept of it for later runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from crucible import store
from crucible.errors import StoreError
from crucible.judge.attempts import is_own_failure
from crucible.judge.verdict.verdict import NO_FLOOR, Crashed, OutOfMemory, TimedOut, Verdict, from_json, to_json
from crucible.legible import counted
from crucible.run import Ground, Run, candidate_json, ground_from_json
from crucible.underway import Step

_NOT_KEPT = (TimedOut, OutOfMemory, Crashed)
"""Outcomes that depend on what else the machine was doing, so they are found anew each time."""


class Records:
    """Verdicts as they come: to the run's folder, and to the store."""

    def __init__(
        self, folder: store.RunFolder, names: list[str], key: str, say: Callable[[str], None], request: Any
    ) -> None:
        """`names` are the candidates' in the user's order; `key` is of all that every verdict depends on; `request` is
        what `crucible judge --resume` will want to know, None where that stands in the folder already."""
        self.verdicts: dict[str, Verdict] = {}
        self.ground = Ground()
        self.cut_short = ""
        self.told: Callable[[Verdict], None] = lambda verdict: None
        """Called with each verdict as it comes to stand."""
        self._names = names
        self._key = key
        self._say = say
        self._kept = store.Verdicts(store.home())
        self._folder = folder
        self._trouble: list[str] = []
        if request is not None:
            self._guarded(lambda: self._folder.begin(request))

    @property
    def trouble(self) -> str:
        return "; ".join(self._trouble)

    @property
    def total(self) -> int:
        """Candidates of the run."""
        return len(self._names)

    def in_order(self) -> tuple[Verdict, ...]:
        return tuple(self.verdicts[name] for name in self._names if name in self.verdicts)

    def take_over(self, verdict: Verdict) -> None:
        """One that stands in the run's folder already."""
        self.verdicts[verdict.candidate] = verdict

    def recall(self, name: str, key: str) -> bool:
        """Answers a candidate from an earlier run of the same content, where there is one."""
        data = self._kept.get(key)
        if data is None:
            return False
        try:
            verdict = from_json(data)
        except (KeyError, TypeError):
            return False
        self._add(replace(verdict, candidate=name, cached=True))
        return True

    def recall_ground(self) -> None:
        """What an earlier run found to hold for all candidates, if there was one."""
        data = self._kept.get(self._key)
        try:
            self.ground = ground_from_json(data) if data else Ground()
        except (KeyError, TypeError):
            self.ground = Ground()

    def keep_ground(self, ground: Ground) -> None:
        self.ground = ground
        self._guarded(lambda: self._kept.put(self._key, to_json(ground)))

    def keep(self, verdict: Verdict, key: str) -> None:
        """A new verdict: to the run's folder, and to the store unless chance had a part in it."""
        if verdict.evaluation:
            share = self.ground.share_of_floor(verdict.timing) or NO_FLOOR
            findings = (*verdict.findings, *self.ground.questions(verdict.timing))
            verdict = replace(verdict, share_of_floor=share, findings=findings)
        if not (isinstance(verdict.outcome, _NOT_KEPT) or is_own_failure(verdict)):
            self._guarded(lambda: self._kept.put(key, to_json(verdict)))
        self._add(verdict)

    def cut(self, how: str, words: str) -> None:
        """The run ends before its time."""
        self.cut_short = how
        judged = f"judged {len(self.verdicts)} of {counted(len(self._names), 'candidate')}"
        self._trouble.append(f"{words}; {judged}; to go on: crucible judge --resume {self._folder.path.name}")

    def abandon(self) -> None:
        """Nothing was judged, nor can be: the run leaves no folder."""
        self._folder.remove_request()

    def note(self, trouble: str) -> None:
        """Something that went wrong beside the verdicts."""
        self._trouble.append(trouble)

    def finish(self, run: Run) -> Run:
        """Writes the whole run, which then says where it is and what could not be written."""
        kept = self._guarded(lambda: self._folder.finish(run.to_json()))
        return replace(run, folder=str(self._folder.path) if kept else "", trouble=self.trouble)

    def _add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.candidate] = verdict
        told = f"{verdict.candidate}: {verdict.outcome.words}"
        self._say(told if verdict.cached else Step(told, len(self.verdicts), self.total))
        number = self._names.index(verdict.candidate)
        self._guarded(lambda: self._folder.add(number, verdict.candidate, candidate_json(0, verdict)))
        self.told(verdict)

    def _guarded(self, write: Callable[[], None]) -> bool:
        """Whether a record was written; a full disk loses no verdict, it is reported beside them."""
        try:
            write()
        except StoreError as error:
            if str(error) not in self._trouble:
                self._trouble.append(str(error))
            return False
        return True
