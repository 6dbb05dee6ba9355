"""Undisturbed: what is timed on this machine has its GPU, or its cores, for itself among all runs of this judge.

A lock file for each GPU (by its UUID) and for each core; a race holds the GPU's, or as many cores' as it has threads.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from crucible import hardware

FOLDER = Path("/tmp")
"""The same for all users and whatever `TMPDIR` says; a job that has a /tmp of its own shares no locks with others."""
PATIENCE_S = 600.0
"""After which a race goes on beside whoever holds the lock: it may have been stopped, or hold it on purpose."""
_PAUSE_S = 0.02
_TOLD_S = 2.0


@contextlib.contextmanager
def undisturbed(device: str, say: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Waits until nobody times on the GPU that this process sees first, or on as many of its cores as it has threads;
    then nobody else does. Where that takes PATIENCE_S, or no lock can be had, says so and goes on."""
    with contextlib.ExitStack() as held:
        names, wanted = (_gpu_locks(), 1) if device == "cuda" else (_core_locks(), _threads())
        began, told = time.monotonic(), False
        while not _taken(names, wanted, held, say):
            waited = time.monotonic() - began
            if waited > PATIENCE_S:
                say(f"something else is timed on this machine for {waited:.0f} s: timing goes on beside it")
                break
            if waited > _TOLD_S and not told:
                told = True
                say("waiting: something else is timed on this machine")
            time.sleep(_PAUSE_S)
        yield


def _gpu_locks() -> list[str]:
    return [gpu.uuid for gpu in hardware.visible_gpus()[:1]] or ["gpu"]


def _core_locks() -> list[str]:
    return [f"cpu{core}" for core in sorted(os.sched_getaffinity(0))]


def _threads() -> int:
    """Of a candidate on the CPU: PyTorch takes as many as there are cores unless it is told."""
    told, cores = os.environ.get("OMP_NUM_THREADS", ""), hardware.cores()
    return min(int(told), cores) if told.isdecimal() and int(told) else cores


def _taken(names: list[str], wanted: int, held: contextlib.ExitStack, say: Callable[[str], None]) -> bool:
    """Whether all that is wanted of these locks could be had at once; none is kept where not."""
    with contextlib.ExitStack() as attempt:
        got = 0
        for name in names:
            try:
                descriptor = _opened(FOLDER / f"crucible-timing-{name}.lock")
            except OSError as error:
                say(f"no lock for {name} ({error}): what is timed may be disturbed by other runs")
                return True
            attempt.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            got += 1
            if got == wanted:
                held.push(attempt.pop_all())
                return True
    return False


def _opened(file: Path) -> int:
    """To lock a file it is enough to read it, which may be another user's."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(file, flags)
    except FileNotFoundError:
        return os.open(file, flags | os.O_CREAT, 0o644)
