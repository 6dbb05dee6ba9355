"""Fleet: workers that take submissions from a ledger until they are told to end, whatever becomes of them meanwhile."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from crucible import store
from crucible.errors import CrucibleError, DeviceError, JudgeError, ProcessLostError, own_error
from crucible.fleet.ledger import LEASE_S, Claimed, Ledger, Status, worker_name

MOST = 32
"""Submissions of one batch for one worker at a time."""
FEWEST = 4
"""Taken at once, or left: below that the reference's answers, worked out anew, cost more than an even end of the run
gains. Five of a task taken as four and one made two GPUs take 0.63 of one's time (H100)."""
START_S = 300.0
"""Until a worker is ready: Python, and a process that has computed on the device."""
UNWELL_STARTS = 5
"""In a row, of a worker that does not come up, or whose device does not compute: then it is left alone."""
LONGEST_PAUSE_S = 60.0
PATIENCE_S = 3600.0
"""A worker that says nothing for so long is lost. What it does has limits of its own, the longest usually 900 s."""
STRANGE_DEVICE_S = 60.0
"""After so long without work, a worker also takes of batches that the fleet's other kind of device has begun."""
_POLL_S = 0.25
_RECLAIM_S = 5.0


class Worker(Protocol):
    """Where batches are judged: a process of this machine, or an actor on another one. Its methods raise
    ProcessLostError where it is lost, but for `close`, after which it can be started again."""

    @property
    def name(self) -> str: ...

    @property
    def kinds(self) -> frozenset[str]: ...

    def start(self, *, probe: bool) -> None: ...

    def give(self, batch: Sequence[dict[str, Any]], fresh: bool) -> None: ...

    def next_event(self, timeout_s: float) -> dict[str, Any] | None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Health:
    """How a worker is."""

    name: str
    state: str = "starting"
    """`starting`, `idle`, `judging`, `lost` (a fresh one is on its way), `unwell` (left alone) or `ended`."""
    device: str = ""
    trouble: str = ""
    """What went wrong last."""
    process: int = 0
    """Its number, on its machine; 0 before it is ready."""
    doing: str = ""
    """What it said last of its work."""
    judged: int = 0
    losses: int = 0


class Fleet:
    """Workers over a ledger. A context manager: `start` on entering, `stop` on leaving."""

    def __init__(
        self,
        ledger: Ledger,
        workers: Sequence[Worker],
        *,
        devices: Sequence[str] = (),
        only: Iterable[str] | None = None,
        most: int = MOST,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`devices` are the workers' by their names, as far as known: what others judged does not count for them (see
        `Ledger.add`). `only` keeps to submissions of these ids, where others in the ledger are somebody else's. `most`
        is how many of one batch a worker takes at once: fewer where urgent ones shall not wait for long. `say` is
        called, from several threads, with what happens to workers."""
        self.ledger = ledger
        self.devices = tuple(sorted({device for device in devices if device}))
        self.only = None if only is None else frozenset(only)
        self._workers = list(workers)
        self._most, self._fewest = most, min(FEWEST, most)
        self._say = say
        self._health = {worker.name: Health(worker.name) for worker in workers}
        self._ending = threading.Event()
        self._awake = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._judge = store.code_digest()
        self._token = secrets.token_hex(3)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def kinds(self) -> frozenset[str]:
        """Devices of submissions that it can take."""
        return frozenset().union(*(worker.kinds for worker in self._workers))

    def start(self) -> None:
        """Starts all workers; returns at once."""
        self.ledger.reclaim_lost()
        self._ending.clear()
        jobs = [(self._tended, (worker,)) for worker in self._workers]
        self._threads = [threading.Thread(target=job, args=given, daemon=True) for job, given in jobs]
        self._threads.append(threading.Thread(target=self._reclaim, daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends all workers in order: what they have not finished waits in the ledger for the next fleet."""
        self._ending.set()
        self.wake()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def wake(self) -> None:
        """Something was added: an idle worker need not find out by itself, which takes a quarter of a second."""
        with self._awake:
            self._awake.notify_all()

    def health(self) -> list[Health]:
        """Of each worker."""
        return [self._health[worker.name] for worker in self._workers]

    def drain(self, ids: Iterable[str], progress: Callable[[Status], None] = lambda status: None) -> Status:
        """Waits until all of these are done, failed or cancelled; `progress` is called now and then. Raises DeviceError
        where no worker takes submissions for their device, JudgeError when no worker is left."""
        wanted = list(ids)
        self._check(wanted)
        while True:
            status = self.ledger.status(wanted)
            progress(status)
            if status.settled == status.total:
                return status
            if all(one.state in ("unwell", "ended") for one in self.health()):
                troubles = "; ".join(f"{one.name}: {one.trouble}" for one in self.health())
                raise JudgeError(f"no worker is left ({troubles}); {status.settled} of {status.total} are finished and "
                                 "kept: once the machine is in order, the same command goes on")  # fmt: skip
            with self._awake:
                self._awake.wait(_POLL_S)

    def _check(self, ids: list[str]) -> None:
        waiting = self.ledger.waiting_kinds(ids)
        if beyond := sorted(waiting - self.kinds):
            raise DeviceError(f"no worker for --device {', '.join(beyond)}: these take {', '.join(sorted(self.kinds))}")

    def _tended(self, worker: Worker) -> None:
        """One worker's life: started again after each loss, with longer pauses where it comes to nothing."""
        try:
            self._tend(worker)
        except Exception as error:  # noqa: BLE001 - a thread's end is told, never silent
            known = isinstance(error, CrucibleError)
            self._note(worker, state="unwell", trouble=str(error if known else own_error(error)))
        finally:
            worker.close()
            self.ledger.release(self._named(worker))
            if self._health[worker.name].state != "unwell":
                self._note(worker, state="ended")
            self.wake()

    def _tend(self, worker: Worker) -> None:
        in_vain = unwell = 0
        while not self._ending.is_set():
            before, well = self._health[worker.name].judged, False
            try:
                ready = self._started(worker, probe=bool(in_vain) or "cuda" in worker.kinds)
                if ready is None:
                    return
                well = True
                self._serve(worker, str(ready["device"]["name"]))
                return
            except ProcessLostError as error:
                self._lose(worker, str(error))
            unwell = 0 if well else unwell + 1
            if unwell >= UNWELL_STARTS:
                raise JudgeError(self._health[worker.name].trouble)
            in_vain = 0 if self._health[worker.name].judged > before else in_vain + 1
            self._ending.wait(min(2.0**in_vain - 1, LONGEST_PAUSE_S))

    def _started(self, worker: Worker, *, probe: bool) -> dict[str, Any] | None:
        """What a worker says that has come up well; None where the fleet ends meanwhile. Raises ProcessLostError, and
        JudgeError where it will never be of use."""
        self._note(worker, state="starting", process=0)
        worker.start(probe=probe)
        deadline = time.monotonic() + START_S
        while not self._ending.is_set():
            ready = worker.next_event(1.0)
            if ready is None and time.monotonic() < deadline:
                continue
            if ready is None:
                raise ProcessLostError(f"{worker.name} was not ready after {START_S:.0f} s")
            if ready["judge"] != self._judge:
                raise JudgeError("it runs another version of Crucible than this process: install the same there")
            if ready["trouble"]:
                raise ProcessLostError(ready["trouble"])
            self._note(worker, process=ready["process"])
            return ready
        return None

    def _lose(self, worker: Worker, reason: str) -> None:
        worker.close()
        losses = self._health[worker.name].losses + 1
        self._note(worker, state="lost", trouble=reason, losses=losses)
        failed = self.ledger.give_up(self._named(worker), reason)
        self._say(f"{worker.name} lost: {reason}" + (f"; {len(failed)} submissions failed so" if failed else ""))

    def _serve(self, worker: Worker, device: str) -> None:
        """Batch after batch. Raises ProcessLostError."""
        name, idle_since = self._named(worker), time.monotonic()
        self._note(worker, state="idle", device=device)
        while not self._ending.is_set():
            strange = time.monotonic() - idle_since > STRANGE_DEVICE_S
            others = () if strange else self.devices
            batch = self.ledger.claim(
                name, worker.kinds, self._share(), device=device, others=others, only=self.only, fewest=self._fewest
            )
            if batch:
                self._note(worker, state="judging")
                self._judge_batch(worker, device, batch)
                self._note(worker, state="idle")
                idle_since = time.monotonic()
                continue
            with self._awake:
                self._awake.wait(_POLL_S)

    def _judge_batch(self, worker: Worker, device: str, batch: Sequence[Claimed]) -> None:
        """Raises ProcessLostError where the worker is lost, or had better be: what it says is left is given up then."""
        name, ids = self._named(worker), [one.submission.id for one in batch]
        worker.give([one.submission.to_json() for one in batch], batch[0].fresh)
        heard = renewed = time.monotonic()
        while not self._ending.is_set():
            event = worker.next_event(1.0)
            now = time.monotonic()
            if now - renewed > LEASE_S / 4:
                self.ledger.renew(name)
                renewed = now
            if event is None:
                if now - heard > PATIENCE_S:
                    raise ProcessLostError(f"{worker.name} has said nothing for {PATIENCE_S:.0f} s")
                continue
            heard = now
            if event["event"] == "judged":
                self.ledger.finish(ids[event["number"]], event["run"], device)
                self._note(worker, judged=self._health[worker.name].judged + 1)
                self.wake()
            elif event["event"] == "said":
                self._note(worker, doing=event["text"])
            elif event["event"] == "failed":
                self.ledger.give_up(name, event["reason"], [ids[event["number"]]])
            elif event["event"] == "ended":
                self._end(worker, event["reason"], event["final"])
                return

    def _end(self, worker: Worker, reason: str, final: bool) -> None:
        """Of a batch. What is left of one that cannot be judged fails at once; of others, the worker is to blame."""
        if final:
            self.ledger.give_up(self._named(worker), reason, final=True)
        elif reason:
            raise ProcessLostError(reason)

    def _share(self) -> int:
        """How many to take at once: fewer towards the end, so that all workers end together."""
        queued = self.ledger.status(self.only).queued
        return max(self._fewest, min(self._most, -(-queued // (2 * len(self._workers)))))

    def _reclaim(self) -> None:
        while not self._ending.wait(_RECLAIM_S):
            try:
                self.ledger.reclaim_lost()
            except CrucibleError as error:
                self._say(str(error))

    def _named(self, worker: Worker) -> str:
        """In the ledger, where other fleets of this process have workers too."""
        return worker_name(f"{self._token}-{worker.name}")

    def _note(self, worker: Worker, **what: Any) -> None:
        self._health[worker.name] = replace(self._health[worker.name], **what)
