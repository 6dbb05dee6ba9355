"""desk: where requests meet the ledger. Its calls run in threads, so that no request waits for another's disk."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from fastapi import Request

from crucible.errors import MisuseError, StoreError
from crucible.fleet.engine import Fleet
from crucible.fleet.ledger import CANCELLED, DONE, FAILED, Entry
from crucible.fleet.submission import Submission
from crucible.serve.checking import check, is_known
from crucible.serve.intake import Intake, Outcome, Taken, Wanted
from crucible.serve.metrics import Metrics
from crucible.serve.task_ids import Asked

T = TypeVar("T")
SETTLED = (DONE, FAILED, CANCELLED)
ALIVE = ("idle", "judging")
LOOK_S = 0.05
"""Between looks at what somebody waits for."""
COUNT_S = 0.5
"""Between looks at all that is not settled."""


class StoppingError(Exception):
    """The service ends; what it has taken stays in the queue."""


class Desk:
    """Takes submissions, tells what became of them, and waits for that. One for a process."""

    def __init__(self, intake: Intake, fleet: Fleet) -> None:
        """`fleet` judges what is in the intake's ledger."""
        self.metrics = Metrics()
        self.stopping = False
        self._intake, self._ledger, self._fleet = intake, intake.ledger, fleet
        self._writer = ThreadPoolExecutor(1, "ledger-writer")
        self._readers = ThreadPoolExecutor(4, "ledger-reader")
        self._arrivals: asyncio.Queue[tuple[Sequence[Wanted], asyncio.Future[Taken]]] = asyncio.Queue()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._open: set[str] = set()
        """What is not settled, as far as this process knows."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._open = set(await self._read(self._ledger.unsettled))
        self._tasks = [asyncio.create_task(run()) for run in (self._add_arrivals, self._watch)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for threads in (self._writer, self._readers):
            threads.shutdown()

    def stop(self) -> None:
        """Takes nothing more, and lets everybody go who waits."""
        self.stopping = True
        for key in list(self._waiting):
            self._tell(key)

    def workers(self) -> tuple[int, int]:
        """How many live, and how many were lost so far."""
        health = self._fleet.health()
        return sum(one.state in ALIVE for one in health), sum(one.losses for one in health)

    async def submit(self, wanted: Sequence[Wanted]) -> Taken:
        """Their ids and states in the ledger, once they are written: all of them or none. Raises MisuseError for what
        is no task, TakenError, QueueFullError, StoppingError, StoreError."""
        submissions = [one.submission for one in wanted]
        if all(is_known(one) for one in submissions):
            self._check(submissions)
        else:
            await self._read(lambda: self._check(submissions))
        if self.stopping:
            raise StoppingError("the service ends: submit again when it is back")
        taken: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        self._arrivals.put_nowait((wanted, taken))
        return await taken

    def _check(self, submissions: Sequence[Submission]) -> None:
        for submission in submissions:
            if submission.kind not in self._fleet.kinds:
                raise MisuseError(
                    f"no worker here for device {submission.kind}: choose {', '.join(sorted(self._fleet.kinds))}"
                )
            check(submission)

    async def entries(self, keys: Sequence[str]) -> dict[str, Entry]:
        """What is known of these; those that were never submitted are left out."""
        return await self._read(lambda: self._ledger.results(keys))

    async def place_in_queue(self, key: str) -> int:
        """How many go before it."""
        return await self._read(lambda: self._ledger.place_in_queue(key))

    async def asked(self, task_ids: Sequence[str]) -> dict[str, Asked]:
        """What callers' own ids stand for; those that nobody gave are left out."""
        return await self._call(self._writer, lambda: self._intake.task_ids.find(task_ids))

    async def cancel(self, key: str) -> bool:
        """Whether there was anything left to cancel."""
        cancelled = await self._call(self._writer, lambda: self._ledger.cancel(key))
        self._tell(key)
        return cancelled

    async def counts(self) -> dict[str, int]:
        """How many submissions are in each state."""
        return await self._read(self._ledger.counts)

    def trouble(self) -> str:
        """Why nothing can be judged just now; empty where it can."""
        if self.stopping:
            return "the service ends"
        if any(task.done() for task in self._tasks):
            return "a task of the service's own has ended: start it again"
        alive, _ = self.workers()
        return "" if alive else "no worker lives"

    async def wait(self, keys: Sequence[str], seconds: float) -> float:
        """Until all are settled, or the time is over, or the service ends. Returns how long that was."""
        if seconds <= 0 or self.stopping:
            return 0.0
        told: dict[str, asyncio.Future[None]] = {key: asyncio.get_running_loop().create_future() for key in keys}
        for key, future in told.items():
            self._waiting.setdefault(key, set()).add(future)
        try:
            states = await self._read(lambda: self._ledger.states(told))
            for key in told:
                if states.get(key) in (*SETTLED, None):
                    self._tell(key)
            start = time.perf_counter()
            await asyncio.wait(told.values(), timeout=seconds)
            return time.perf_counter() - start
        finally:
            for key, future in told.items():
                self._forget(key, future)

    def _forget(self, key: str, future: asyncio.Future[None]) -> None:
        left = self._waiting.get(key, set())
        left.discard(future)
        if not left:
            self._waiting.pop(key, None)

    def _tell(self, key: str) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    async def _add_arrivals(self) -> None:
        """What came while the last was written goes together."""
        while True:
            arrived = [await self._arrivals.get()]
            while not self._arrivals.empty():
                arrived.append(self._arrivals.get_nowait())
            requests = [wanted for wanted, _ in arrived]
            outcomes = await self._call(self._writer, lambda taken=requests: self._intake.add(taken))  # type: ignore[misc]
            self._fleet.wake()
            for (_, taken), outcome in zip(arrived, outcomes, strict=True):
                self._reply(taken, outcome)

    def _reply(self, taken: asyncio.Future[Taken], outcome: Outcome) -> None:
        if isinstance(outcome, list):
            self._open.update(key for key, state in outcome if state not in SETTLED)
        if taken.done():  # its caller has gone
            return
        if isinstance(outcome, list):
            taken.set_result(outcome)
        else:
            taken.set_exception(outcome)

    async def _watch(self) -> None:
        """Tells those who wait, and counts verdicts as they come."""
        counted = 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            due = time.monotonic() - counted >= COUNT_S
            counted = time.monotonic() if due else counted
            keys = self._waiting.keys() | (self._open if due else ())
            if keys:
                with contextlib.suppress(StoreError):  # whoever asks is told; the next look may be better
                    await self._look(keys)

    async def _look(self, keys: set[str]) -> None:
        states = await self._read(lambda: self._ledger.states(keys))
        settled = [key for key in keys if states.get(key) in (*SETTLED, None)]
        for key in settled:
            self._tell(key)
        fresh = self._open.intersection(settled)
        self._open -= fresh
        if fresh:
            self._intake.reached(len(fresh))
            for outcome, seconds in await self._read(
                lambda: [_counted(e) for e in self._ledger.results(fresh).values()]
            ):
                self.metrics.judged(outcome, seconds)

    async def _read(self, ask: Callable[[], T]) -> T:
        return await self._call(self._readers, ask)

    async def _call(self, threads: ThreadPoolExecutor, ask: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, ask)


def _counted(entry: Entry) -> tuple[str, float]:
    """What became of a submission, in a word, and the seconds that its judgement took."""
    candidates: list[dict[str, Any]] = entry.run["candidates"] if entry.run else []
    return (candidates[0]["verdict"]["kind"], candidates[0]["total_s"]) if candidates else (entry.state, 0.0)


def code_of(failed: Entry) -> str:
    """Who is to blame for a submission that failed: whoever wrote its task or options, or the service."""
    return "VALIDATION_ERROR" if failed.misuse else "SYSTEM_ERROR"


def desk_of(request: Request) -> Desk:
    """The application's."""
    desk: Desk = request.app.state.desk
    return desk
