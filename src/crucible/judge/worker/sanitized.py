"""A candidate's process under compute-sanitizer: builds and runs it on a case that lies on disk, and says nothing.

The tool writes what it sees to a file of its own. There is no channel to the judge, and no sandbox: the tool talks
to the process through a port, and reads and writes where Landlock would not let it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from crucible.judge.process import sandbox


def main() -> None:
    settings = json.loads(sys.argv[1])
    sandbox.limit(settings["file_bytes"])
    run(settings)


def run(settings: dict[str, Any]) -> None:
    """The import, with its build; then, where a case is given, forward and backward, and all results copied to the
    host, which is how an output that no kernel wrote is seen."""
    from crucible.judge.worker import worker  # imports torch

    one = worker.Worker(settings, None)
    one.import_({})
    case = settings["case"]
    if case is not None:
        one.construct({"seed": settings["seed"]})
        one.run(case)
        results = [tensor.cpu() for tensor in one.outputs]
        if case["backward"]:
            one.backward(case)
            results += [tensor.cpu() for tensor in one.gradients.values()]
