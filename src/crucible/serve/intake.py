"""intake: what may come into the queue, and under which of its callers' ids. Blocking; one thread calls it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from crucible.errors import MisuseError
from crucible.fleet.ledger import CANCELLED, FAILED, QUEUED, Ledger
from crucible.fleet.submission import Submission
from crucible.serve.task_ids import Asked, TaskIds

LONGEST_RETRY_S = 60
USUAL_RETRY_S = 5
"""While nobody knows yet how fast verdicts come."""


class QueueFullError(Exception):
    """More than the queue may hold; `retry_s` is when there should be room."""

    def __init__(self, words: str, retry_s: int) -> None:
        super().__init__(words)
        self.retry_s = retry_s


class TakenError(MisuseError):
    """A caller's id stands for something else already."""


@dataclass(frozen=True)
class Wanted:
    """One thing to judge, and the caller's own id for it, if there is one."""

    submission: Submission
    task_id: str = ""
    backend: str = ""
    """What its caller wants a speed-up to be told against."""
    anew: bool = False
    """The id may have stood for something else."""


Taken = list[tuple[str, str]]
"""Of a request: each submission's id in the ledger and its state there."""
Outcome = Taken | Exception
"""Or why it was not taken."""


@dataclass
class Intake:
    """Puts requests into the ledger, each whole or not at all."""

    ledger: Ledger
    task_ids: TaskIds
    limit: int
    """Submissions that may be queued or running."""
    devices: Sequence[str] = ()
    """The workers', by name: what another one judged is judged again when somebody asks."""
    _reached_at: deque[float] = field(default_factory=lambda: deque(maxlen=64))

    def add(self, requests: Sequence[Sequence[Wanted]]) -> list[Outcome]:
        """What became of each request; all that may come in is written in one transaction."""
        try:
            refusals = self._refusals(requests)
            pairs = zip(requests, refusals, strict=True)
            states = self._write([one for wanted, refusal in pairs if refusal is None for one in wanted])
        except Exception as error:  # noqa: BLE001 - whoever asked is told; those after them are heard all the same
            return [error for _ in requests]
        placed = [[(key := one.submission.id, states.get(key, QUEUED)) for one in wanted] for wanted in requests]
        return [refusal or taken for refusal, taken in zip(refusals, placed, strict=True)]

    def _write(self, accepted: Sequence[Wanted]) -> dict[str, str]:
        """The states that come of it."""
        if not accepted:
            return {}
        ids = self.ledger.add((one.submission for one in accepted), devices=self.devices)
        now = time.time()
        named = [Asked(one.task_id, one.submission.id, one.backend, now) for one in accepted if one.task_id]
        if named:
            self.task_ids.keep(named)
        return self.ledger.states(ids)

    def reached(self, verdicts: int) -> None:
        """So many verdicts came just now."""
        self._reached_at.extend([time.monotonic()] * verdicts)

    def _refusals(self, requests: Sequence[Sequence[Wanted]]) -> list[Exception | None]:
        """Of each, in their order, as long as there is room; None of those that may come in."""
        everything = [one for wanted in requests for one in wanted]
        states = self.ledger.states({one.submission.id for one in everything})
        asked = self.task_ids.find({one.task_id for one in everything if one.task_id})
        stands_for = {name: one.submission for name, one in asked.items()}
        room = self.limit - self.ledger.depth()
        refusals: list[Exception | None] = []
        for wanted in requests:
            new = {key for one in wanted if states.get(key := one.submission.id, FAILED) in (FAILED, CANCELLED)}
            refusal = self._refusal(wanted, stands_for, len(new), room)
            if refusal is None:
                room -= len(new)
                states |= dict.fromkeys(new, QUEUED)
                stands_for |= {one.task_id: one.submission.id for one in wanted if one.task_id}
            refusals.append(refusal)
        return refusals

    def _refusal(self, wanted: Iterable[Wanted], stands_for: dict[str, str], new: int, room: int) -> Exception | None:
        names = dict(stands_for)
        for one in wanted:
            known = names.setdefault(one.task_id, one.submission.id) if one.task_id else one.submission.id
            if known != one.submission.id and not one.anew:
                return TakenError(f"task_id {one.task_id!r} stands for another submission: use a new one")
        if new > self.limit:
            return MisuseError(f"{new} submissions never fit into a queue of {self.limit}: send fewer at a time")
        if new > room:
            return self._full(new - max(room, 0))
        return None

    def _full(self, beyond: int) -> QueueFullError:
        """With the time in which as many verdicts came of late as must come before there is room."""
        times, retry_s = list(self._reached_at), USUAL_RETRY_S
        if len(times) > 1:
            each_s = (time.monotonic() - times[0]) / len(times)
            retry_s = min(max(math.ceil(beyond * each_s), 1), LONGEST_RETRY_S)
        words = f"the queue is full: {self.limit} submissions wait or are judged; try again in {retry_s} s"
        return QueueFullError(words, retry_s)
