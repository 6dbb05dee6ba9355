"""The first thing that runs in a candidate's process: the sandbox, before torch and the threads it starts."""

from __future__ import annotations

import gc
import json
import sys

from crucible.judge import sandbox


def main() -> None:
    settings = json.loads(sys.argv[1])
    sandbox.die_with_parent()
    sandbox.limit(settings["file_bytes"])
    if settings["confine"]:
        sandbox.confine(settings["readable"], settings["writable"])

    gc.disable()  # as in kept.py
    from crucible.judge import worker  # imports torch

    gc.freeze()
    gc.enable()
    worker.run(settings)


if __name__ == "__main__":
    main()
