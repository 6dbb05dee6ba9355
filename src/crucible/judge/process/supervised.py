"""A process under a supervisor: how the judge starts, watches and ends the other processes."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crucible import hardware
from crucible.errors import JudgeError
from crucible.judge.process.launcher import launcher, python
from crucible.judge.process.limits import Limits
from crucible.judge.process.log import Log
from crucible.judge.process.supervisor import FIRST as FIRST
from crucible.judge.process.tree_clock import Spent, spent

_KEPT_ENVIRONMENT = {"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CC", "CXX", "MAX_JOBS", "OMP_NUM_THREADS"} | {
    *(f"CUDA_{name}" for name in ("HOME", "PATH", "VISIBLE_DEVICES")),
    *(f"NVIDIA_{name}" for name in ("VISIBLE_DEVICES", "DRIVER_CAPABILITIES", "TF32_OVERRIDE")),
    "TORCH_CUDA_ARCH_LIST",
}
"""By their names: what begins with NVIDIA_ may be somebody's key."""
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that spin while they wait take processor time of nobody's work: identical code seemed 0.6 to 15 ms. Each of
the oracle's would spin for 4 ms after it has drawn what a call is timed on, beside that call."""

_lock = threading.Lock()


class SupervisedProcess:
    """One of the judge's modules running under a supervisor, which ends it with all that it started."""

    def __init__(
        self,
        module: str,
        argument: str,
        *,
        folder: Path,
        passed: list[int],
        environment: dict[str, str],
        limits: Limits,
        behind: Sequence[str] = (),
    ) -> None:
        """Starts `crucible.judge.<module>.main()` with `argument`; `passed` are the descriptors it inherits, there with
        the numbers from `FIRST` on; `behind` is a command that runs another, which is then Python's. Raises JudgeError
        where it does not start, or its folder was called off (`end_below`)."""
        self.folder = folder
        self._dead = threading.Event()
        self.memory_bytes = limits.memory
        """What it and its children may hold."""
        status, theirs = os.pipe()
        log, output = os.pipe()
        settings = {
            "module": module,
            "argument": argument,
            "argv": [*behind, *python(module), argument] if behind else [],
            "memory_bytes": self.memory_bytes,
            "processes": limits.processes,
            "folder": str(folder),
            "environment": environment,
        }
        self._status = os.fdopen(status, "rb", buffering=0)
        self.log = Log(log)
        try:
            self._launcher = launcher(environment)
            self._supervisor = self._launcher.start(settings, (theirs, output, *passed))
        finally:
            os.close(theirs)
            os.close(output)
        with _lock:
            _started.add(self)
            called_off = any(folder.is_relative_to(one) for one in _ended)
        if called_off:
            self.kill()
            raise JudgeError(f"nothing starts in {folder} any more: it was called off")

    def end(self, within_s: float = 10.0) -> dict[str, Any]:
        """How it ended, once it has hung up: `{"end": "exit", "code": ...}`, `memory`, `processes`; `lost` where the
        supervisor ended before it; nothing where that took longer. Nothing of it is left then."""
        if self._dead.is_set():
            return {}  # the judge ended it
        text = b""
        deadline = time.monotonic() + within_s
        while not text.endswith(b"\n"):
            if not select.select([self._status], [], [], max(0.0, deadline - time.monotonic()))[0]:
                break
            data = self._status.read(4096)
            if not data:
                text = b'{"end": "lost"}\n'
                break
            text += data
        self.kill()
        return dict(json.loads(text)) if text.endswith(b"\n") else {}

    @property
    def is_over(self) -> bool:
        """Whether `kill` or `end` was called: nothing of it is left."""
        return self._dead.is_set()

    def spent(self) -> Spent:
        """What all its processes have taken of the processors."""
        return spent(self._supervisor)

    def kill(self) -> None:
        """Ends the whole tree with SIGKILL; safe to call twice and from another thread."""
        if self._dead.is_set():
            return
        self._dead.set()
        self._launcher.end(self._supervisor, at_once=False)  # it kills everything below it, orphans included
        if not self._is_gone(10.0):
            self._launcher.end(self._supervisor, at_once=True)
            self._is_gone(10.0)
        self.log.finish()

    def _is_gone(self, within_s: float) -> bool:
        """Whether the supervisor, which alone can write to the status, is no more."""
        poll = select.poll()
        poll.register(self._status.fileno(), 0)  # asks for nothing but the end
        return bool(poll.poll(within_s * 1e3))

    @property
    def last_words(self) -> str:
        """The last line that it printed."""
        return self.log.last_words


_started: weakref.WeakSet[SupervisedProcess] = weakref.WeakSet()
_ended: set[Path] = set()


def end_below(folder: Path) -> None:
    """Ends what runs in that folder or below it, whoever started it, and lets nothing start there any more; from any
    thread."""
    with _lock:
        _ended.add(folder)
        found = [process for process in _started if process.folder.is_relative_to(folder)]
    for process in found:
        process.kill()


def forget_ended(folder: Path) -> None:
    """That something was ended in that folder or below it, once the folder is no more."""
    with _lock:
        _ended.difference_update([one for one in _ended if one.is_relative_to(folder)])


def exit_in_words(code: int | None) -> str:
    """`killed by SIGSEGV`, `exit code 3`."""
    if code is None:
        return "its process vanished"
    reason = ", as Linux does where memory runs out" if code == -signal.SIGKILL else ""
    return f"killed by {signal.Signals(-code).name}{reason}" if code < 0 else f"exit code {code}"


def private_environment(folder: Path, header: str) -> dict[str, str]:
    """No secrets, and every cache in the candidate's own folder."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT_ENVIRONMENT}
    tools = [str(Path(sys.executable).parent)]  # ninja stands beside python
    tools += [str(Path(hardware.nvcc()).parent)] if hardware.nvcc() else []
    return {
        **kept,
        "PATH": os.pathsep.join([*tools, kept.get("PATH", "/usr/bin:/bin")]),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "TRITON_CACHE_DIR": str(folder / "home/triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "home/inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # its pool of subprocesses fails inside the sandbox
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # 4 s, of use to later modules alone
        "PYTHONDONTWRITEBYTECODE": "1",
        **WAITING,
        **({"CPATH": header} if header else {}),
    }
