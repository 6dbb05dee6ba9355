"""What the emulator keeps between runs, and for how long: headers and runtimes that it prepared, extensions that it
built."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

KEPT_S = 30 * 86400.0
"""What nobody asked for so long goes when something is added: each version of Crucible, PyTorch and the compiler has
300 to 750 MB of its own, each extension half a megabyte."""


def asked_for(file: Path) -> None:
    """Notes that a file is in use, where it may be written."""
    with suppress(OSError):
        os.utime(file)


def forget_extensions(folder: Path) -> None:
    """Removes those of a folder that nobody asked for lately."""
    for file in folder.glob("*.so"):
        if _is_old(file):
            with suppress(OSError):  # another user's, where all build in one temporary folder
                file.unlink()


def forget_prepared(home: Path) -> None:
    """Removes folders of headers and runtimes whose locks nobody took lately, nor holds."""
    for lock in home.glob("[0-9a-f]" * 16 + ".lock"):
        if not _is_old(lock):
            continue
        with suppress(OSError), open(lock) as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink()


def _is_old(file: Path) -> bool:
    with suppress(OSError):
        return time.time() - file.stat().st_mtime > KEPT_S
    return False
