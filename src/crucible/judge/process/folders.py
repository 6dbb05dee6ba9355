"""Folders for what is made on the way: gone afterwards, whatever candidates made in them."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from crucible.errors import MisuseError
from crucible.judge.process.namespaces import SHARED_MEMORY


@contextlib.contextmanager
def temporary(prefix: str) -> Iterator[Path]:
    """A folder of its own, where TMPDIR says. Raises MisuseError for one that candidates would not find there."""
    if Path(tempfile.gettempdir()).resolve().is_relative_to(SHARED_MEMORY):
        raise MisuseError(
            f"TMPDIR is {tempfile.gettempdir()}, and candidates see a {SHARED_MEMORY} of their own: set TMPDIR to "
            "another folder (another tmpfs will do)"
        )
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """The folder and all below it, also where that is deeper than Python recurses (a candidate's 3,000 folders ended a
    run); what this user may not remove stays."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL, check=False)
