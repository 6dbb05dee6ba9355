"""clipped: a record with its texts and lists cut to what a person may read: a candidate has a part in their length."""

from __future__ import annotations

import dataclasses
from typing import Any

LONGEST, MOST = 2000, 1000
"""Characters of a text, items of a list."""


def clipped(record: Any) -> Any:
    """The same record, no text in it over `LONGEST` characters, no list over `MOST` items."""
    if isinstance(record, str):
        return record if len(record) <= LONGEST else f"{record[:LONGEST]}... ({len(record)} characters)"
    if isinstance(record, tuple):
        return tuple(clipped(item) for item in record[:MOST])
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        fields = {f.name: clipped(getattr(record, f.name)) for f in dataclasses.fields(record) if f.init}
        return dataclasses.replace(record, **fields)
    return record
