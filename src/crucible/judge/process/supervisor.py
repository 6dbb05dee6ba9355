"""Supervisor: the process between the fork server and a candidate, which runs nothing of the candidate's.

It starts the candidate's process, adopts whatever that one leaves behind, watches the memory and the number
of processes of the whole tree, and kills all of it when a limit is passed or the judge goes away.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from crucible.judge.process import sandbox

POLL_S = 0.05
FIRST = 3
"""The descriptors that are handed on have the numbers from this one on, in their order."""
_TOLD = {signal.SIGTERM}
"""Tells a supervisor to end. It waits for that (`keep`) and has no handler, which would raise wherever it is by then:
the judge tells one that has just said how its child ended, and 1 in 30 raised on its way out, in the fork server's own
code."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(root: int) -> dict[int, int]:
    """Process ids below `root` with their resident bytes, read from /proc."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
                parents[int(entry)] = (int(fields[1]), int(fields[21]) * _PAGE_BYTES)
    found: dict[int, int] = {}
    frontier = {root}
    while frontier:
        frontier = {pid for pid, (parent, _) in parents.items() if parent in frontier and pid not in found}
        found.update({pid: parents[pid][1] for pid in frontier})
    return found


def watched(root: int) -> dict[int, int]:
    """`descendants` by the kernel's own lists of children, for a look every 50 ms: 0.07 ms where reading all of /proc
    takes 1.5 (90 processes). One that starts as another ends may be missing from it until the next look."""
    found: dict[int, int] = {}
    frontier = [root]
    while frontier:
        pid = frontier.pop()
        with contextlib.suppress(OSError, IndexError):
            found[pid] = int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE_BYTES
            frontier += [child for thread in os.listdir(f"/proc/{pid}/task") for child in _children(pid, thread)]
    found.pop(root, None)
    return found


def kill_tree() -> None:
    """SIGKILL to every descendant, again until none is left (each round adopts the orphans of the last)."""
    me = os.getpid()
    while pids := descendants(me):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


class Child(Protocol):
    """A process that was started."""

    def poll(self) -> int | None:
        """Its exit code, minus the signal that killed it, or None while it runs."""


class Fork:
    """One of the judge's modules running in a fork of this process."""

    def __init__(self, module: str, argument: str, status: int) -> None:
        def run() -> None:
            os.close(status)
            _heed()
            sys.argv = [module, argument]
            importlib.import_module(f"crucible.judge.{module}").main()

        self._pid = fork(run)
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def fork(run: Callable[[], None]) -> int:
    """The process id of a fork that runs a function and ends as Python would."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is, it may not run on as its parent
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def keep(child: Child, settings: dict[str, Any]) -> dict[str, Any]:
    """Watches a child to its end or to a limit; returns how it ended, or nothing where this process is told to end or
    the judge is gone."""
    for descriptor in settings["pass"]:
        os.close(descriptor)
    killed_before = oom_kills()
    look = watched if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else descendants
    while (code := child.poll()) is None:
        if os.getppid() != settings["judge"]:
            return {}
        tree = look(os.getpid())
        if len(tree) > settings["processes"]:
            return {"end": "processes", "count": len(tree)}
        if sum(tree.values()) > settings["memory_bytes"]:
            return {"end": "memory", "bytes": sum(tree.values())}
        if signal.sigtimedwait(_TOLD, POLL_S):
            return {}
    lost = code == -signal.SIGKILL and oom_kills() > killed_before
    return {"end": "no memory"} if lost else {"end": "exit", "code": code}


OOM_COUNTS = ["/sys/fs/cgroup/memory.events", "/proc/vmstat"]


def oom_kills() -> int:
    """How many processes Linux has killed for their memory: in this container where that is known, else on the
    machine; 0 where neither is."""
    for file in OOM_COUNTS:
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split() for line in _read(file).splitlines())
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return 0


def _children(pid: int, thread: str) -> list[int]:
    """What a thread has started, or adopted; nothing for one that is over."""
    with contextlib.suppress(OSError):
        return [int(child) for child in _read(f"/proc/{pid}/task/{thread}/children").split()]
    return []


def _read(file: str) -> str:
    with open(file, encoding="ascii") as opened:
        return opened.read()


def watch(settings: dict[str, Any]) -> None:
    """Starts what the settings name, and leaves nothing of it when that is over or this process is told to end.

    `argv`, a command, or else `module` and `argument`, which a fork runs; `pass`, descriptors it inherits; `status`,
    where one line of JSON says how it ended; `judge`, whose child this process is; `memory_bytes` and `processes`, its
    limits.
    """
    sandbox.adopt_orphans()
    signal.pthread_sigmask(signal.SIG_BLOCK, _TOLD)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    try:
        end = keep(_started(settings), settings)
    finally:
        kill_tree()
    if end:
        with contextlib.suppress(OSError):
            os.write(settings["status"], json.dumps(end).encode() + b"\n")


def _heed() -> None:
    """In a child: SIGTERM is its own again."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TOLD)


def _started(settings: dict[str, Any]) -> Child:
    if settings["argv"]:
        return subprocess.Popen(settings["argv"], pass_fds=settings["pass"], preexec_fn=_heed)
    return Fork(settings["module"], settings["argument"], settings["status"])
