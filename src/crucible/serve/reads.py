"""reads: the ledger as a service looks at it, many times a second: indexes alone, no record is opened."""

from __future__ import annotations

import json
from collections.abc import Iterable

from crucible.fleet.ledger import Ledger


class ServedLedger(Ledger):
    """The fleet's ledger with three questions more."""

    def states(self, ids: Iterable[str]) -> dict[str, str]:
        """The state of each that is known."""
        rows = self._read(
            "SELECT id, state FROM submissions WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),)
        )
        return dict(rows)

    def depth(self) -> int:
        """How many are queued or running."""
        return int(self._read("SELECT count(*) FROM submissions WHERE state IN ('queued', 'running')", ())[0][0])

    def unsettled(self) -> list[str]:
        """The ids of these."""
        return [row[0] for row in self._read("SELECT id FROM submissions WHERE state IN ('queued', 'running')", ())]
