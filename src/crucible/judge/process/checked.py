"""The first thing that runs in the process of a file that is checked with no task: the sandbox."""

from __future__ import annotations

import json
import sys

from crucible.judge.process import namespaces, sandbox
from crucible.judge.worker import alone


def main() -> None:
    settings = json.loads(sys.argv[1])
    sandbox.die_with_parent()
    sandbox.limit(settings["file_bytes"])
    sandbox.be_the_first_to_go()
    own = [namespaces.SHARED_MEMORY] if namespaces.enter() else []
    held_by = sandbox.Layers(**settings["held_by"])
    sandbox.confine(settings["readable"], [*settings["writable"], *own], settings["usable"], held_by)
    alone.run(settings)
