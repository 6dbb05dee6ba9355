"""Into the sandbox: what every process that runs a candidate's code, or a file's, does first."""

from __future__ import annotations

import json
import sys
from typing import Any

from crucible.judge.process import namespaces, sandbox


def confined() -> dict[str, Any]:
    """Confines this process for good, by the settings that its first argument holds. Returns them."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    sandbox.die_with_parent()
    sandbox.limit(settings["file_bytes"])
    sandbox.be_the_first_to_go()
    own = [namespaces.SHARED_MEMORY] if namespaces.enter() else []
    held_by = sandbox.Layers(**settings["held_by"])
    sandbox.confine(settings["readable"], [*settings["writable"], *own], settings["usable"], held_by)
    return settings
