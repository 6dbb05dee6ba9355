"""The first thing that runs in a candidate's process, a fork with one thread: the sandbox."""

from __future__ import annotations

import json
import sys

from crucible.judge.process import sandbox
from crucible.judge.worker import worker


def main() -> None:
    settings = json.loads(sys.argv[1])
    sandbox.die_with_parent()
    sandbox.limit(settings["file_bytes"])
    if settings["confine"]:
        sandbox.confine(settings["readable"], settings["writable"])

    worker.run(settings)
