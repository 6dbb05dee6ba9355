"""A process under a keeper: how the judge starts, watches and ends the other processes."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible import hardware

SOURCE = Path(__file__).resolve().parents[2]
"""The folder that holds the package."""
_BOOT = (
    "import gc, sys, types; sys.path += {packages!r}; front = types.ModuleType('crucible'); "
    "front.__path__ = [{package!r}]; sys.modules['crucible'] = front; "
    "gc.disable(); from crucible.judge.{module} import main; gc.freeze(); gc.enable(); main()"
)
"""The package without its front door: behind that stands what these processes have no use for (0.1 s). What an import
makes is no garbage: to look for some among it takes 0.2 s of torch's 1.1."""
_KEPT_ENVIRONMENT = {"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CC", "CXX", "MAX_JOBS", "OMP_NUM_THREADS"} | {
    f"CUDA_{name}" for name in ("HOME", "PATH", "VISIBLE_DEVICES")
}
_KEPT_PREFIXES = ("NVIDIA_", "TORCH_CUDA_ARCH_LIST")
LOG_BYTES = 32 << 10
"""Kept of what a candidate prints: as much from the beginning as from the end."""


@dataclass(frozen=True)
class Limits:
    """What a candidate may take."""

    build_s: float = 300.0
    """Import and construction, builds included."""
    run_s: float = 60.0
    """One forward, one backward, or one hand-over of results."""
    oracle_s: float = 900.0
    """The reference's answers, all cases."""
    race_s: float = 0.0
    """Rounds of one timed race, of which the fewest are taken all the same, and the measurement of the device's own
    rates; 0 stands for what the device needs."""
    shrink_s: float = 20.0
    """The search for the smallest failing shape of a candidate that fails; 0: none. A few dozen runs at small sizes:
    under a second on a CPU, 5 to 15 s for a tiled matrix product on the emulator."""
    memory_bytes: int = 0
    """Resident memory of the candidate's process tree; 0 stands for three quarters of the machine's."""
    processes: int = 256
    """Processes alive at a time (a parallel build needs dozens)."""
    file_bytes: int = 4 << 30
    """Size of any one file it writes."""

    @property
    def memory(self) -> int:
        return self.memory_bytes or hardware.memory_bytes() * 3 // 4


class Log:
    """Drains a pipe so that a chatty process never blocks, and keeps both ends of what was said."""

    def __init__(self, descriptor: int) -> None:
        self._head, self._tail, self._dropped = b"", b"", 0
        self._thread = threading.Thread(target=self._drain, args=(descriptor,), daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        gap = f"\n... {self._dropped} bytes left out ...\n".encode() if self._dropped else b""
        return (self._head + gap + self._tail).decode(errors="replace")

    def finish(self) -> None:
        self._thread.join(timeout=5)

    def _drain(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 16):
                room = LOG_BYTES - len(self._head)
                self._head += data[:room]
                self._tail += data[room:]
                self._dropped += max(0, len(self._tail) - LOG_BYTES)
                self._tail = self._tail[-LOG_BYTES:]


class KeptProcess:
    """One of the judge's modules running under a keeper, which ends it with all that it started."""

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
        """Starts `crucible.judge.<module>.main()` with `argument`; `passed` are the descriptors it inherits, `behind` a
        command that runs another."""
        self._dead = threading.Event()
        status, theirs = os.pipe()
        log, output = os.pipe()
        settings = {
            "argv": [*behind, *_python(module), argument],
            "pass": passed,
            "status": theirs,
            "judge": os.getpid(),
            "memory_bytes": limits.memory,
            "processes": limits.processes,
        }
        self._keeper = subprocess.Popen(
            [*_python("keeper"), json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(*passed, theirs),
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(output)
        self._status = os.fdopen(status, "rb", buffering=0)
        self.log = Log(log)

    def end(self, within_s: float = 10.0) -> dict[str, Any]:
        """How it ended, once it has hung up: `{"end": "exit", "code": ...}`, `memory`, `processes`; nothing where that
        took longer. Nothing of it is left then."""
        text = b""
        deadline = time.monotonic() + within_s
        while not text.endswith(b"\n"):
            if not select.select([self._status], [], [], max(0.0, deadline - time.monotonic()))[0]:
                break
            data = self._status.read(4096)
            if not data:
                break
            text += data
        self.kill()
        return dict(json.loads(text or b"{}"))

    def kill(self) -> None:
        """Ends the whole tree with SIGKILL; safe to call twice and from another thread."""
        if self._dead.is_set():
            return
        self._dead.set()
        self._keeper.terminate()  # the keeper kills everything below it, orphans included
        try:
            self._keeper.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._keeper.pid, signal.SIGKILL)
            self._keeper.wait()
        self.log.finish()

    @property
    def last_words(self) -> str:
        """The last line that it printed."""
        return (self.log.text.strip().splitlines() or ["it said nothing"])[-1]


def exit_in_words(code: int | None) -> str:
    """`killed by SIGSEGV`, `exit code 3`."""
    if code is None:
        return "its process vanished"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def private_environment(folder: Path, header: str) -> dict[str, str]:
    """No secrets, and every cache in the candidate's own folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_ENVIRONMENT or name.startswith(_KEPT_PREFIXES)
    }
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
        "PYTHONDONTWRITEBYTECODE": "1",
        **({"CPATH": header} if header else {}),
    }


def package_folders() -> list[str]:
    """Where torch, Triton and what they need are installed, also when that is the user's own or named in PYTHONPATH."""
    folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    found = [importlib.util.find_spec(package) for package in ("torch", "triton")]
    folders += [str(Path(spec.origin).parents[1]) for spec in found if spec is not None and spec.origin is not None]
    return list(dict.fromkeys(folders))


def _python(module: str) -> list[str]:
    """Isolated from the current folder and from PYTHON* variables, so that no file beside a task is imported."""
    code = _BOOT.format(package=str(SOURCE / "crucible"), packages=package_folders(), module=module)
    return [sys.executable, "-I", "-c", code]
