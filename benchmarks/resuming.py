"""Records that a second call goes on with: only what was measured alike goes into one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def held(file: Path, header: Mapping[str, Any], key: str) -> Any:
    """What a record holds under `key`; None where there is none yet. Ends the process where its header (device,
    versions, settings) is not this call's: one header stands for all that a file holds."""
    if not file.exists():
        return None
    record = json.loads(file.read_text())
    for name, now in header.items():
        if record.get(name) != now:
            then = record.get(name, "not recorded")
            raise SystemExit(
                f"{file} holds {name} = {then!r}, this call has {now!r}: name another file, or move it away"
            )
    return record[key]
