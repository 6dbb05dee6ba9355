"""Ledger: what was submitted, who works on it, what came of it. On disk, for many processes of one machine.

Each step is one transaction, so that a process may be killed at any place: what it had finished stands, what it worked
on goes back to the queue. SQLite's write-ahead log holds against the death of every process; of what was written in
the last moment before the whole machine loses power, some may be judged again.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible import store
from crucible.errors import StoreError
from crucible.fleet.submission import Submission, submission_from_json

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
STATES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)
LEASE_S = 60.0
"""How long a worker may be silent before its work is somebody else's."""
MOST_LOSSES = 3
"""Workers that may be lost under one submission."""
MOST_RECLAIMS = 8
"""How often it may be taken back from a fleet that is no more: once for each head that was killed."""
_TOGETHER = (1 << 30, 4, 1)
"""How many may be claimed at once by the workers lost under them: who is to blame is found out alone."""
_TABLES = """
CREATE TABLE IF NOT EXISTS submissions (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, record TEXT NOT NULL, kind TEXT NOT NULL,
  batch TEXT NOT NULL, priority INTEGER NOT NULL, judge TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'queued',
  worker TEXT NOT NULL DEFAULT '', lease REAL NOT NULL DEFAULT 0, losses INTEGER NOT NULL DEFAULT 0,
  reclaims INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '', device TEXT NOT NULL DEFAULT '',
  misuse INTEGER NOT NULL DEFAULT 0, fresh INTEGER NOT NULL DEFAULT 0, passed INTEGER NOT NULL DEFAULT 0,
  run TEXT NOT NULL DEFAULT '',
  added REAL NOT NULL, finished REAL NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS queue ON submissions (state, priority DESC, losses, number);
CREATE INDEX IF NOT EXISTS batches ON submissions (batch, state);
CREATE INDEX IF NOT EXISTS progress ON submissions (state, passed, id);
"""


@dataclass(frozen=True)
class Entry:
    """One submission and what became of it."""

    id: str
    submission: Submission
    state: str
    """One of STATES."""
    reason: str
    """Why it failed, or why the last worker was lost under it: the infrastructure's doing, never a verdict."""
    losses: int
    """Workers lost under it."""
    device: str
    """By its name, of the worker that has it or judged it."""
    run: dict[str, Any] | None
    """Once done: its record (`crucible.run/1`), with one candidate in it."""
    misuse: bool = False
    """It failed since what was submitted cannot be judged anywhere: a task that raises, an option that does not fit."""


@dataclass(frozen=True)
class Claimed:
    """A submission that a worker has now."""

    submission: Submission
    fresh: bool
    """Earlier verdicts of the same content do not count."""


@dataclass(frozen=True)
class Status:
    """How many there are of each."""

    queued: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    passed: int = 0
    """Of those done."""

    @property
    def total(self) -> int:
        return self.queued + self.running + self.settled

    @property
    def settled(self) -> int:
        return self.done + self.failed + self.cancelled


class Ledger:
    """Submissions and their states in one SQLite file, on a disk of this machine: its locks are of no use on NFS.

    Safe to use from many threads and processes. Raises StoreError where the file cannot be read or written.
    """

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.time) -> None:
        """`clock` tells seconds, the same to all processes."""
        self.path = Path(path)
        self._clock = clock
        self._local = threading.local()
        self._judge = store.code_digest()
        self._connections: list[sqlite3.Connection] = []
        with _as_store_error(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection().executescript(_TABLES)

    def add(self, submissions: Iterable[Submission], *, again: bool = False, devices: Sequence[str] = ()) -> list[str]:
        """Queues what is not there yet, in this order; returns their ids. Of what is there already, the following is
        queued once more: what failed or was cancelled, and what is done by another version of the judge, on a device
        that is not among `devices` (where any are named), or at all with `again`."""
        found = [(one, one.id) for one in submissions]
        with self._transaction() as connection:
            for submission, key in found:
                connection.execute(
                    "INSERT INTO submissions (id, record, kind, batch, priority, judge, fresh, added) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
                    (key, json.dumps(submission.to_json()), submission.kind, submission.batch, submission.priority,
                     self._judge, again, self._clock()),
                )  # fmt: skip
            self._requeue(connection, [key for _, key in found], again, devices)
            connection.executemany(
                "UPDATE submissions SET priority = max(priority, ?) WHERE id = ? AND state = 'queued'",
                [(submission.priority, key) for submission, key in found],
            )
        return [key for _, key in found]

    def _requeue(self, connection: sqlite3.Connection, ids: list[str], again: bool, devices: Sequence[str]) -> None:
        connection.execute(
            "UPDATE submissions SET state = 'queued', judge = ?1, fresh = ?2, losses = 0, reclaims = 0, misuse = 0, "
            "reason = '', worker = '', run = '', passed = 0, device = '' "
            "WHERE id IN (SELECT value FROM json_each(?3)) AND ("
            "state IN ('failed', 'cancelled') OR state = 'done' AND (?2 OR judge <> ?1 OR json_array_length(?4) > 0 "
            "AND device NOT IN (SELECT value FROM json_each(?4))))",
            (self._judge, again, json.dumps(ids), json.dumps(list(devices))),
        )

    def claim(
        self,
        worker: str,
        kinds: Iterable[str],
        most: int = 1,
        *,
        device: str = "",
        others: Iterable[str] = (),
        only: Iterable[str] | None = None,
        fewest: int = 1,
        lease_s: float = LEASE_S,
    ) -> list[Claimed]:
        """Takes the next submission whose device is one of `kinds`, and up to `most` of the same batch with it: the
        highest priority first, what lost no worker before what did, then who came first. Nothing where nothing waits.

        `device` is the worker's by its name, and `others` are those of the rest of its fleet: a batch that one of them
        has begun is left to that one, since times on two do not compare. `only` keeps to submissions of these ids.
        Fewer than `fewest` of a batch are not left behind: they are taken too.
        """
        with self._transaction() as connection:
            ids = None if only is None else json.dumps(list(only))
            among = "AND (?3 IS NULL OR id IN (SELECT value FROM json_each(?3)))"
            first = connection.execute(
                "SELECT batch, losses, priority, fresh FROM submissions AS s WHERE state = 'queued' "
                f"AND kind IN (SELECT value FROM json_each(?1)) {among} AND NOT EXISTS (SELECT 1 FROM "
                "submissions AS o WHERE o.batch = s.batch AND o.state IN ('running', 'done') "
                "AND o.device IN (SELECT value FROM json_each(?2))) ORDER BY priority DESC, losses, number LIMIT 1",
                (json.dumps(sorted(kinds)), json.dumps(sorted(set(others) - {device})), ids),
            ).fetchone()
            if first is None:
                return []
            batch, losses, priority, fresh = first
            most = min(most, _TOGETHER[min(losses, len(_TOGETHER) - 1)])
            enough = most if losses else most + fewest
            rows = connection.execute(
                "SELECT id, record, fresh FROM submissions WHERE state = 'queued' AND batch = ?1 AND losses = ?2 "
                f"AND priority = ?4 AND fresh = ?5 {among} ORDER BY number LIMIT ?6",
                (batch, losses, ids, priority, fresh, enough),
            ).fetchall()
            rows = rows[:most] if len(rows) == enough else rows
            connection.executemany(
                "UPDATE submissions SET state = 'running', worker = ?, lease = ?, device = ? WHERE id = ?",
                [(worker, self._clock() + lease_s, device, key) for key, _, _ in rows],
            )
        return [Claimed(submission_from_json(json.loads(record)), bool(fresh)) for _, record, fresh in rows]

    def renew(self, worker: str, lease_s: float = LEASE_S) -> None:
        """The worker is alive: what it has stays its own for another while."""
        with self._transaction() as connection:
            until = self._clock() + lease_s
            connection.execute(
                "UPDATE submissions SET lease = ? WHERE worker = ? AND state = 'running'", (until, worker)
            )

    def finish(self, key: str, run: dict[str, Any], device: str = "") -> bool:
        """Writes down what was found, a run's record with one candidate; whether it is the first to do so. A verdict
        is as good where its worker was given up meanwhile; what was cancelled or is done stays as it is."""
        passed = any(entry["evaluation"] for entry in run["candidates"])
        text = json.dumps(run, allow_nan=False)
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE submissions SET state = 'done', run = ?, passed = ?, device = ?, judge = ?, finished = ?, "
                "worker = '', reason = '' WHERE id = ? AND state IN ('queued', 'running', 'failed')",
                (text, passed, device, self._judge, self._clock(), key),
            )
        return changed.rowcount == 1

    def give_up(self, worker: str, reason: str, ids: Iterable[str] | None = None, *, final: bool = False) -> list[str]:
        """The worker was lost, or could not judge what it has (all, or `ids` of it): back to the queue, or, for the
        last of several times, failed with the reason. At once where it is `final`: what was submitted is to blame,
        which no other worker can judge either. Returns what failed."""
        with self._transaction() as connection:
            chosen = None if ids is None else json.dumps(list(ids))
            rows = connection.execute(
                "UPDATE submissions SET losses = losses + 1, reason = ?1, worker = '', device = '', finished = ?2, "
                "misuse = ?3, state = CASE WHEN ?3 OR losses + 1 >= ?4 THEN 'failed' ELSE 'queued' END "
                "WHERE worker = ?5 "
                "AND state = 'running' AND (?6 IS NULL OR id IN (SELECT value FROM json_each(?6))) RETURNING id, state",
                (reason[:2000], self._clock(), final, MOST_LOSSES, worker, chosen),
            ).fetchall()
        return [key for key, state in rows if state == FAILED]

    def release(self, worker: str) -> int:
        """The worker ends in order: what it has not finished waits again, and nobody is to blame. How many."""
        with self._transaction() as connection:
            return connection.execute(
                "UPDATE submissions SET state = 'queued', worker = '', device = '' "
                "WHERE worker = ? AND state = 'running'",
                (worker,),
            ).rowcount

    def cancel(self, key: str) -> bool:
        """Takes it out of the queue, or disregards what comes of it; whether there was anything left to cancel."""
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE submissions SET state = 'cancelled', worker = '', finished = ? "
                "WHERE id = ? AND state IN ('queued', 'running')",
                (self._clock(), key),
            )
        return changed.rowcount == 1

    def reclaim_lost(self) -> int:
        """Gives back to the queue what is held by workers whose lease is over, or whose process is no more (where it
        was of this machine). How many; those that were taken back too often fail."""
        with self._transaction() as connection:
            held = connection.execute("SELECT DISTINCT worker FROM submissions WHERE state = 'running'").fetchall()
            gone = [worker for (worker,) in held if is_gone(worker)]
            now = self._clock()
            reason = f"taken back {MOST_RECLAIMS} times from fleets that ended without a word"
            return connection.execute(
                "UPDATE submissions SET worker = '', device = '', reclaims = reclaims + 1, finished = ?1, "
                "state = CASE WHEN reclaims + 1 >= ?2 THEN 'failed' ELSE 'queued' END, "
                "reason = CASE WHEN reclaims + 1 >= ?2 THEN ?3 ELSE reason END "
                "WHERE state = 'running' AND (lease < ?1 OR worker IN (SELECT value FROM json_each(?4)))",
                (now, MOST_RECLAIMS, reason, json.dumps(gone)),
            ).rowcount

    def status(self, only: Iterable[str] | None = None) -> Status:
        """Of all, or of these ids."""
        ids = None if only is None else json.dumps(list(only))
        rows = self._read(
            "SELECT state, count(*), sum(passed) FROM submissions "
            "WHERE (?1 IS NULL OR id IN (SELECT value FROM json_each(?1))) GROUP BY state",
            (ids,),
        )
        counts = {state: count for state, count, _ in rows}
        return Status(**counts, passed=sum(passed for state, _, passed in rows if state == DONE))

    def waiting_kinds(self, only: Iterable[str] | None = None) -> set[str]:
        """Devices that what waits, of all or of these ids, was submitted for."""
        ids = None if only is None else json.dumps(list(only))
        rows = self._read(
            "SELECT DISTINCT kind FROM submissions WHERE state = 'queued' "
            "AND (?1 IS NULL OR id IN (SELECT value FROM json_each(?1)))",
            (ids,),
        )
        return {kind for (kind,) in rows}

    def states(self, ids: Iterable[str]) -> dict[str, str]:
        """The state of each that is known."""
        rows = self._read(
            "SELECT id, state FROM submissions WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),)
        )
        return dict(rows)

    def counts(self) -> dict[str, int]:
        """How many are in each state."""
        return dict.fromkeys(STATES, 0) | dict(self._read("SELECT state, count(*) FROM submissions GROUP BY state", ()))

    def depth(self) -> int:
        """How many are queued or running."""
        return int(self._read("SELECT count(*) FROM submissions WHERE state IN ('queued', 'running')", ())[0][0])

    def unsettled(self) -> list[str]:
        """The ids of these."""
        return [row[0] for row in self._read("SELECT id FROM submissions WHERE state IN ('queued', 'running')", ())]

    def results(self, ids: Iterable[str]) -> dict[str, Entry]:
        """What is known of these, by id; those that were never submitted are left out."""
        rows = self._read(
            "SELECT id, record, state, reason, losses, device, run, misuse FROM submissions "
            "WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(ids)),),
        )
        return {row[0]: _entry(row) for row in rows}

    def entry(self, key: str) -> Entry | None:
        """What is known of one; None where it was never submitted."""
        return self.results([key]).get(key)

    def place_in_queue(self, key: str) -> int:
        """How many go before it; 0 also where it does not wait."""
        rows = self._read(
            "SELECT count(*) FROM submissions AS a, submissions AS b WHERE b.id = ? AND b.state = 'queued' "
            "AND a.state = 'queued' AND (a.priority, -a.losses, -a.number) > (b.priority, -b.losses, -b.number)",
            (key,),
        )
        return int(rows[0][0])

    def close(self) -> None:
        """Ends all threads' connections."""
        while self._connections:
            self._connections.pop().close()
        self._local = threading.local()

    def _read(self, query: str, values: Sequence[Any]) -> list[Any]:
        with _as_store_error(self.path):
            return self._connection().execute(query, values).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; one writer at a time."""
        with _as_store_error(self.path):
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _connection(self) -> sqlite3.Connection:
        """This thread's."""
        found = getattr(self._local, "connection", None)
        if found is None:
            found = sqlite3.connect(self.path, timeout=60.0, isolation_level=None, check_same_thread=False)
            _log_ahead(found)
            found.execute("PRAGMA synchronous = NORMAL")
            self._local.connection = found
            self._connections.append(found)
        return found


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Sets the write-ahead log. Where others do so at the same time SQLite refuses at once, without its usual wait."""
    for pause_s in (0.0, 0.01, 0.1, 0.5, 2.0):
        time.sleep(pause_s)
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")
            return
    connection.execute("PRAGMA journal_mode = WAL")


@contextlib.contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        remedy = "free some space, or set CRUCIBLE_HOME to a disk of this machine"
        raise StoreError(f"the ledger {path} cannot be used: {error}; {remedy}") from error


def _entry(row: Sequence[Any]) -> Entry:
    key, record, state, reason, losses, device, run, misuse = row
    submission = submission_from_json(json.loads(record))
    return Entry(key, submission, state, reason, losses, device, json.loads(run) if run else None, bool(misuse))


def worker_name(slot: str) -> str:
    """A worker's name in the ledger: its machine, this process by number and start, and what it holds."""
    return f"{platform.node()}:{os.getpid()}:{_started(os.getpid())}/{slot}"


def is_gone(worker: str) -> bool:
    """Whether it was of a process of this machine that is no more; False where that cannot be known."""
    machine, _, rest = worker.partition(":")
    number, _, started = rest.partition("/")[0].partition(":")
    if machine != platform.node() or not (number.isdecimal() and started.isdecimal()):
        return False
    return _started(int(number)) != int(started)


def _started(process: int) -> int:
    """When it began, in the kernel's ticks since the machine did; -1 where there is no such process."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    fields = text.rpartition(")")[2].split()
    return -1 if fields[0] == "Z" else int(fields[19])
