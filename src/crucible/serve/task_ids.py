"""task_ids: which submission a caller's own id stands for, kept on disk beside the ledger."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.errors import StoreError


@dataclass(frozen=True)
class Asked:
    """What somebody asked for under an id of their own."""

    task_id: str
    submission: str
    """The ledger's id."""
    backend: str
    """What a speed-up is told against; empty for the reference as it stands."""
    submitted_at: float
    """Seconds since the epoch."""


class TaskIds:
    """A table of them, for one thread at a time. Raises StoreError where the file cannot be read or written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with self._as_store_error():
            self._rows = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=60.0)
            self._rows.execute("PRAGMA journal_mode = WAL")
            self._rows.execute("PRAGMA synchronous = NORMAL")
            self._rows.execute(
                "CREATE TABLE IF NOT EXISTS asked (task_id TEXT PRIMARY KEY, submission TEXT NOT NULL,"
                " backend TEXT NOT NULL, submitted_at REAL NOT NULL) WITHOUT ROWID"
            )

    def find(self, task_ids: Iterable[str]) -> dict[str, Asked]:
        """Those of the given ids that are known."""
        wanted = json.dumps(list(task_ids))
        with self._as_store_error():
            rows = self._rows.execute(
                "SELECT task_id, submission, backend, submitted_at FROM asked "
                "WHERE task_id IN (SELECT value FROM json_each(?))",
                (wanted,),
            ).fetchall()
        return {row[0]: Asked(*row) for row in rows}

    def keep(self, asked: Sequence[Asked]) -> None:
        """All in one transaction; an id that is known stands for the new one from now on."""
        rows = [(one.task_id, one.submission, one.backend, one.submitted_at) for one in asked]
        with self._as_store_error():
            self._rows.execute("BEGIN IMMEDIATE")
            self._rows.executemany("INSERT OR REPLACE INTO asked VALUES (?, ?, ?, ?)", rows)
            self._rows.execute("COMMIT")

    def close(self) -> None:
        self._rows.close()

    @contextlib.contextmanager
    def _as_store_error(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "_rows" in vars(self) and self._rows.in_transaction:
                self._rows.execute("ROLLBACK")
            raise StoreError(
                f"{self._file} cannot be used: {error}; give --store a folder on a disk with room"
            ) from error
