"""score: one candidate's verdict for a training loop, from any thread and any event loop, as many at once as one likes.

One judgement at a time runs on a device, also beside other processes of this user: the rest wait in the order in which
they came. Those that wait for the same task go into one run, which then works the reference's answers and baselines out
once. What goes wrong with the judge, the disk or the device is an exception; it is never a verdict.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import fcntl
import inspect
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crucible import hardware, pipeline, store
from crucible.answer import is_an_answer
from crucible.candidate import ANSWERS, Candidate
from crucible.errors import CandidateError, CrucibleError, JudgeError, StoreError, TaskError, own_error
from crucible.judge.attempts import is_own_failure
from crucible.judge.process.supervised import end_below, forget_ended
from crucible.judge.verdict.verdict import Verdict
from crucible.listening import Listener
from crucible.run import Run
from crucible.task import Task

MOST_TOGETHER = 16
"""Candidates of one task in one run: what a training loop samples of a prompt."""
ROOM_BYTES = 64 << 20
"""Free on disk: below it, what fails may have failed for that."""
GATHER_S = 0.1
"""In which those who ask at the same time come to wait together; a judgement takes seconds."""
POLL_S = 0.05
OPTIONS = {
    name
    for name, parameter in inspect.signature(pipeline.judge).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name not in ("listener", "root")
}


async def score(
    reference: str | Path | Task, candidate: str | Path | Candidate, *, entry_point: str = "ModelNew", **options: Any
) -> Verdict:
    """The verdict on one candidate.

    Args:
        reference: a task's text, its file or folder, or a Task.
        candidate: a Python module or a model's answer (`crucible.answer` says how that is read), as text; a file's
            `pathlib.Path`; or a Candidate.
        entry_point: what stands for `ModelNew` in it.
        options: those of `crucible.judge`.

    Raises MisuseError for a reference that is none, or an option; JudgeError where the judge, the disk or the device
    failed. When the task that awaits it is cancelled, the judgement's processes are ended first; verdicts that stand
    are kept.
    """
    request = await asyncio.to_thread(_request, reference, candidate, entry_point, options)
    _lane(request.device).submit(request)
    try:
        return await asyncio.wrap_future(request.verdict)
    except asyncio.CancelledError:
        request.verdict.cancel()
        await asyncio.shield(asyncio.wrap_future(request.over))
        raise


def score_sync(
    reference: str | Path | Task, candidate: str | Path | Candidate, *, entry_point: str = "ModelNew", **options: Any
) -> Verdict:
    """`score` for who has no event loop: the same arguments, verdicts and errors; it blocks this thread alone."""
    request = _request(reference, candidate, entry_point, options)
    _lane(request.device).submit(request)
    try:
        return request.verdict.result()
    except KeyboardInterrupt:
        request.verdict.cancel()
        request.over.result()
        raise


@dataclass(eq=False)
class _Request:
    """One that waits for a verdict."""

    task: Task
    candidate: Candidate
    options: Mapping[str, Any]
    device: str
    verdict: Future[Verdict] = field(default_factory=Future)
    """Pending until it is known: who cancels it calls the candidate off."""
    over: Future[None] = field(default_factory=Future)
    """Done when nothing of it runs any more."""
    batch: _Batch | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Requests with the same one go into one run."""
        return (repr(self.task), repr(sorted(self.options.items())))

    def answer(self, outcome: Verdict | Exception) -> None:
        with contextlib.suppress(InvalidStateError):  # it was called off meanwhile
            if isinstance(outcome, Exception):
                self.verdict.set_exception(copy.copy(outcome))  # each waiter raises its own
            else:
                self.verdict.set_result(replace(outcome, candidate=self.candidate.name))

    def end(self) -> None:
        with contextlib.suppress(InvalidStateError):
            self.over.set_result(None)


def _request(
    reference: str | Path | Task, candidate: str | Path | Candidate, entry_point: str, options: Mapping[str, Any]
) -> _Request:
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise TypeError(
            f"score() has no option {unknown[0]!r}: those of crucible.judge are {', '.join(sorted(OPTIONS))}"
        )
    task = as_task(reference)
    device = hardware.find_device(options.get("device", "auto"))
    return _Request(task, as_candidate(candidate, entry_point), dict(options), device.kind)


def as_task(reference: str | Path | Task) -> Task:
    """A task from its text, its file or its folder. Raises TaskError."""
    if isinstance(reference, Task):
        return reference
    if isinstance(reference, str) and "\n" in reference:
        return Task.from_source(reference)
    if not isinstance(reference, str | Path) or not str(reference).strip():
        raise TaskError(f"no task in {reference!r}: give a reference's text, or the path of its file")
    return Task.load(reference)


def as_candidate(candidate: str | Path | Candidate, entry_point: str = "ModelNew") -> Candidate:
    """A candidate from its text (a Python module, or an answer with one in it) or from a file, which only a Path names:
    a model that answers with a file's name shall not have that file judged as its own. Raises CandidateError."""
    if isinstance(candidate, Candidate):
        return candidate
    if isinstance(candidate, Path):
        loaded = Candidate.load(candidate)
        if entry_point == "ModelNew":
            return loaded
        text = candidate.read_bytes().decode("utf-8-sig", errors="replace")
        return Candidate.from_answer(text, entry_point, name=loaded.name, path=candidate)
    if not isinstance(candidate, str):
        raise CandidateError(f"no candidate in {type(candidate).__name__}: give its text, or the Path of its file")
    name = "candidate"
    if "\n" not in candidate and candidate.strip().endswith((".py", *ANSWERS)):
        words = "a text of one line that names a file: what a file holds is given by a pathlib.Path, not by a str"
        return Candidate(name, Path(f"{name}.py"), candidate, words)
    if entry_point != "ModelNew" or is_an_answer(candidate):
        return Candidate.from_answer(candidate, entry_point, name=name)
    return Candidate(name, Path(f"{name}.py"), candidate)


class _Lane:
    """Judgements of one device, one after another."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._waiting: deque[_Request] = deque()
        self._lock = threading.Lock()
        self._is_working = False
        self._batch: _Batch | None = None

    def submit(self, request: _Request) -> None:
        with self._lock:
            self._waiting.append(request)
            starts, self._is_working = not self._is_working, True
        request.verdict.add_done_callback(lambda future: self._call_off(request) if future.cancelled() else None)
        if starts:
            threading.Thread(target=self._work, name=f"crucible-score-{self.device}").start()
            threading.Thread(target=self._end_with_main, name="crucible-score-end").start()

    def _work(self) -> None:
        """Until nobody waits. The run is made up when its turn has come, of all who wait for the same by then."""
        while self._is_working:
            try:
                with turn(self.device, lambda: not self._waiting) as is_ours:
                    time.sleep(GATHER_S)
                    batch = self._next(is_ours)
                    if batch is not None:
                        batch.run()
            except StoreError as error:
                while batch := self._next(True):
                    batch.fail(error)

    def _next(self, is_ours: bool) -> _Batch | None:
        """The oldest request with those that go along with it; None where it is not our turn, or nobody waits."""
        with self._lock:
            self._batch, self._is_working = None, bool(self._waiting)
            if not (is_ours and self._waiting):
                return None
            first = self._waiting[0].key
            together = [request for request in self._waiting if request.key == first][:MOST_TOGETHER]
            self._waiting = deque(request for request in self._waiting if request not in together)
            self._batch = _Batch(together)
            return self._batch

    def _call_off(self, request: _Request) -> None:
        with self._lock:
            waits = request in self._waiting
            if waits:
                self._waiting.remove(request)
        if waits:
            request.end()
        elif request.batch is not None:
            request.batch.call_off()

    def _end_with_main(self) -> None:
        """Ends what runs when the program ends: nobody can take its verdict then."""
        while self._is_working:
            threading.main_thread().join(POLL_S * 4)
            if not threading.main_thread().is_alive():
                with self._lock:
                    left = [*self._waiting, *(self._batch.requests if self._batch else ())]
                for request in left:
                    request.verdict.cancel()


class _Batch(Listener):
    """Requests of one task in one run."""

    def __init__(self, requests: list[_Request]) -> None:
        self.requests = requests
        self._by_name: dict[str, list[_Request]] = {}
        names: dict[str, str] = {}
        for request in requests:
            request.batch = self
            name = names.setdefault(request.candidate.digest, f"{request.candidate.name[:60]}-{len(names)}")
            self._by_name.setdefault(name, []).append(request)
        self._work: Path | None = None
        self._folders: Mapping[str, Path] = {}
        self._is_finished = False

    def run(self) -> None:
        """Answers all of its requests."""
        first = self.requests[0]
        wanted = {name: waiting[0].candidate for name, waiting in self._by_name.items()}
        candidates = [replace(one, name=name, path=Path(f"{name}.py")) for name, one in wanted.items()]
        try:
            failure: CrucibleError = _cut(pipeline.judge(first.task, candidates, **first.options, listener=self))
        except CrucibleError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - nobody may wait for ever
            failure = own_error(error)
        self.fail(failure)

    def fail(self, failure: CrucibleError) -> None:
        """The end: who has no verdict by now has this."""
        for request in self.requests:
            request.answer(failure)
            request.end()
        self._is_finished = True
        self._forget()

    def began(self, work: Path, folders: Mapping[str, Path]) -> None:
        self._folders, self._work = folders, work
        if any(map(self.calls_off, self._by_name)):
            self.call_off()

    def reached(self, run: Run) -> None:
        (verdict,) = run.verdicts
        folder = self._folders.get(verdict.candidate)
        trouble = None if verdict.evaluation else _no_room(folder)
        if is_own_failure(verdict):
            trouble = JudgeError(verdict.outcome.words)
        for request in self._by_name[verdict.candidate]:
            request.answer(trouble or verdict)

    def calls_off(self, name: str) -> bool:
        return all(request.verdict.cancelled() for request in self._by_name[name])

    def is_over(self) -> bool:
        return all(request.verdict.done() for request in self.requests) and any(
            request.verdict.cancelled() for request in self.requests
        )

    def call_off(self) -> None:
        """Ends the processes of what nobody wants any more."""
        threading.Thread(target=self._end_unwanted, name="crucible-score-off").start()

    def _end_unwanted(self) -> None:
        if self.is_over() and self._work is not None:
            end_below(self._work)  # the run ends now, and with it all that waits for that
        for name in filter(self.calls_off, self._by_name):
            if name in self._folders:
                end_below(self._folders[name])
                end_below(self._folders[name].with_name(f"{self._folders[name].name}-again"))
                for request in self._by_name[name] if not self.is_over() else ():
                    request.end()
        if self._is_finished:
            self._forget()

    def _forget(self) -> None:
        if self._work is not None:
            forget_ended(self._work)


def _cut(run: Run) -> JudgeError:
    """Why a run has no verdict on some of its candidates."""
    error = JudgeError(run.trouble or "the run was cut short")
    error.run = run
    return error


def _no_room(own: Path | None) -> JudgeError | None:
    """The disk that has no room left, where what failed may have failed for that: what the candidate itself has written
    counts as room."""
    for folder in {tempfile.gettempdir(), str(_existing(store.home()))}:
        free = shutil.disk_usage(folder).free
        if free < ROOM_BYTES and free + _bytes_below(own) < ROOM_BYTES:
            return StoreError(f"{folder} has {free >> 20} MiB left, so what fails may fail for that: free some space")
    return None


def _existing(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())


def _bytes_below(folder: Path | None) -> int:
    total = 0
    for place, _, files in os.walk(folder) if folder is not None else ():
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


@contextlib.contextmanager
def turn(device: str, given_up: Callable[[], bool]) -> Iterator[bool]:
    """Waits until no other process of this user scores on the device; False where it was given up before that. Raises
    StoreError where that cannot be told."""
    which = os.environ.get("CUDA_VISIBLE_DEVICES", "all") if device == "cuda" else ""
    name = "".join(c if c.isalnum() else "-" for c in f"{device}{which and '-'}{which}")[:80]
    file = store.home() / "turns" / name
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"cannot write {file}: {error}; free some space or set CRUCIBLE_HOME to another disk"
        ) from error
    try:
        while not (given_up() or _locked(descriptor)):
            time.sleep(POLL_S)
        yield not given_up()
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_lanes: dict[str, _Lane] = {}
_making = threading.Lock()


def _lane(device: str) -> _Lane:
    with _making:
        return _lanes.setdefault(device, _Lane(device))


os.register_at_fork(after_in_child=_lanes.clear)  # a fork has none of the threads
