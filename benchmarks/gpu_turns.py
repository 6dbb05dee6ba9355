"""A GPU that many processes work with, and one at a time measures on.

Who measures waits for others that measure, and for nobody else: those who compile, try and warm are stopped meanwhile,
where they are, and go on afterwards. Before, they were waited for, and max-autotune of a network is minutes: of 33
networks 2 were measured in 560 s, as each waited for the slowest of the four that compiled on its GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PLACE = Path(tempfile.gettempdir(), "crucible-kernelbench")
"""Locks, and who works with which GPU."""
DRAINED_S = 0.3
"""What a stopped process had launched is over by then: the longest kernels of these benchmarks take 0.05 s."""


@contextlib.contextmanager
def seat(which: str, seats: int) -> Iterator[None]:
    """One of so many, of this GPU; waits for it."""
    while True:
        for place in range(seats):
            with _file(f"{which}{place}") as file, contextlib.suppress(BlockingIOError):
                with _held(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    yield
                return
        time.sleep(0.05)


@contextlib.contextmanager
def beside_others() -> Iterator[None]:
    """Work with the GPU that measures nothing. This process may be stopped whenever another measures."""
    own = _workers() / str(os.getpid())
    with _file("measuring") as file, _held(file, fcntl.LOCK_SH):  # nobody measures while this one joins
        own.write_text("")
    try:
        yield
    finally:
        own.unlink(missing_ok=True)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """The GPU for this process, which is not within `beside_others`."""
    with _file("measuring") as file, _held(file, fcntl.LOCK_EX):
        stopped = _signalled(signal.SIGSTOP)
        try:
            time.sleep(DRAINED_S * stopped)
            yield
        finally:
            _signalled(signal.SIGCONT)


def resume(gpu: str) -> None:
    """Lets go on whom a process that was killed has left stopped."""
    with _file("measuring", gpu) as file, _held(file, fcntl.LOCK_EX):
        _signalled(signal.SIGCONT, gpu)


def _signalled(number: int, gpu: str | None = None) -> bool:
    """Whether anyone got it; who is no longer there is forgotten."""
    reached = False
    for file in _workers(gpu).iterdir():
        try:
            os.kill(int(file.name), number)
            reached = True
        except ProcessLookupError:
            file.unlink(missing_ok=True)
    return reached


def _workers(gpu: str | None = None) -> Path:
    place = _place("workers", gpu)
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextlib.contextmanager
def _held(file: IO[str], how: int) -> Iterator[None]:
    """Locked until the end, also where a process that was forked meanwhile has the file."""
    fcntl.flock(file, how)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _file(word: str, gpu: str | None = None) -> IO[str]:
    PLACE.mkdir(parents=True, exist_ok=True)
    return open(_place(word, gpu), "w")


def _place(word: str, gpu: str | None) -> Path:
    """Of a GPU by its number; else of this process's."""
    own = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return PLACE / f"gpu{own if gpu is None else gpu}.{word}"
