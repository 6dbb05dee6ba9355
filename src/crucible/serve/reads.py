"""reads: the ledger as a service looks at it, many times a second: indexes alone, no record is opened."""

from __future__ import annotations

import json
from collections.abc import Iterable

from crucible.fleet.ledger import STATES, Ledger


class ServedLedger(Ledger):
    """The fleet's ledger with questions of its own."""

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
