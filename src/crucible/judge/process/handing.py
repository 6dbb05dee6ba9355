"""Handing over inputs: which files go with a request to a candidate's process, as descriptors.

A candidate reaches no folder of inputs. With each request come the files of that request's case, open for reading; of
other cases it sees nothing until their turn, and what it does to a descriptor of its own (each is opened anew) touches
nobody else's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SLOT = "slot"
"""The name under which the memory for the contents of timed calls is handed over."""
_PAIRING = ("weights.", "case0.state.")
"""What its weights are paired by, when the first of them are given to it: the reference's, as they were constructed."""
_ALWAYS = {
    "construct": ("init.",),
    **dict.fromkeys(("run", "trace", "sample"), _PAIRING),
    "set_up": (*_PAIRING, "timed."),
    "influence": (*_PAIRING, "case0."),
}
"""How files begin that go with a verb, whatever its case."""


def files_for(request: dict[str, Any], folder: Path) -> list[Path]:
    """The files that `request` is answered from: those of its verb, and all of its case; of a timed call the weights
    of one case and, where it has a case's own values, the inputs of that."""
    beginnings = _ALWAYS.get(request["do"], ())
    if "case" in request:
        beginnings = (*beginnings, f"case{request['case']}.")
    if "weights" in request:
        beginnings = (*beginnings, f"case{request['weights']}.state.", f"case{request['own']}.inputs.")
    if "after" in request:  # the weights that a step of SGD leads to
        beginnings = (*beginnings, f"case{request['after']}.state.")
    if not beginnings:
        return []
    # A file with another ending is being written. Names first: with the cases beyond a task's own inputs there are a
    # hundred, and paths of all of them for each timed call were a fifth of the judge's own code.
    names = (n for n in os.listdir(folder) if n.startswith(beginnings) and n.endswith((".json", ".bin")))
    return [folder / name for name in sorted(names)]


@contextlib.contextmanager
def opened(files: list[Path]) -> Iterator[tuple[int, ...]]:
    """Descriptors of files, open for reading, for as long as it takes to send them."""
    descriptors: list[int] = []
    try:
        descriptors += [os.open(file, os.O_RDONLY | os.O_CLOEXEC) for file in files]
        yield tuple(descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
