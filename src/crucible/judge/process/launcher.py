"""Launchers: the judge's side of its fork servers."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crucible.errors import JudgeError, ProcessLostError
from crucible.judge.process.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout, pair
from crucible.judge.process.log import Log

SOURCE = Path(__file__).resolve().parents[3]
"""The folder that holds the package."""
START_S = 120.0
"""For Python and torch to come up, also on a crowded machine; no candidate has a part in it."""
_BOOT = (
    "import gc, sys, types; sys.path += {packages!r}; front = types.ModuleType('crucible'); "
    "front.__path__ = [{package!r}]; sys.modules['crucible'] = front; "
    "gc.disable(); from crucible.judge.{module} import main; gc.freeze(); gc.enable(); main()"
)
"""The package without its front door: behind that stands what these processes have no use for (0.1 s). What an import
makes is no garbage: to look for some among it takes 0.2 s of torch's 1.1."""
_READ_AT_START = ("LANG=", "LC_", "LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "CUDA_", "NVIDIA_",
                  "PYTORCH_", "TORCH_")  # fmt: skip
_READ_LATER = ("TORCH_EXTENSIONS_DIR",)

_Alike = tuple[tuple[str, str], ...]
_launchers: dict[_Alike, Launcher] = {}
_lock = threading.Lock()


class Launcher:
    """A fork server, started on first use; it lives as long as this process."""

    def __init__(self, environment: dict[str, str]) -> None:
        ours, theirs = pair()
        log, output = os.pipe()
        self._lock = threading.Lock()
        self._channel = Channel(ours)
        self._process = subprocess.Popen(
            [*python("process.forkserver"), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        os.close(output)
        self._log = Log(log)

    @property
    def is_up(self) -> bool:
        return self._process.poll() is None

    def start(self, settings: dict[str, Any], descriptors: Sequence[int]) -> int:
        """The process id of a new supervisor. `settings` are those of `supervisor.watch`, with `folder` and
        `environment`; `descriptors` are its status, its output, and what it hands on. Raises JudgeError."""
        written = os.memfd_create("settings")
        try:
            os.write(written, json.dumps(settings).encode())
            with self._lock:
                self._channel.send({"do": "start"}, (written, *descriptors))
                reply = self._channel.receive(START_S)
        except (ChannelClosed, ChannelTimeout, BadMessage, OSError) as error:
            self._process.kill()  # what it may yet answer is nobody's
            self._process.wait()
            self._log.finish()
            said = self._log.last_words
            words = f"a process of the judge's could not start ({type(error).__name__}: {said})"
            raise ProcessLostError(words) from error
        finally:
            os.close(written)
        if "refused" in reply:
            remedy = "end other processes, or raise their limit"
            raise JudgeError(f"a process of the judge's could not start ({reply['refused']}): {remedy}")
        return int(reply["pid"])

    def end(self, pid: int, *, at_once: bool) -> None:
        """Tells a supervisor to end what it keeps, or kills it."""
        with contextlib.suppress(ChannelClosed), self._lock:
            self._channel.send({"do": "end", "pid": pid, "at_once": at_once})

    def close(self) -> None:
        """Ends the server, and with it all that it has forked."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)


def launcher(environment: dict[str, str]) -> Launcher:
    """The launcher of processes with this environment: all of those for which Python and libraries start alike, the
    oracle's and the candidates' (1.5 s of a processor for another one)."""
    start = {
        name: value
        for name, value in environment.items()
        if f"{name}=".startswith(_READ_AT_START) and name not in _READ_LATER
    }
    alike = tuple(sorted(start.items()))
    with _lock:
        if alike not in _launchers or not _launchers[alike].is_up:
            _launchers[alike] = Launcher(start)
        return _launchers[alike]


os.register_at_fork(after_in_child=_launchers.clear)  # a fork has servers of its own: two would mix up one's answers


@atexit.register
def _close_all() -> None:
    for each in _launchers.values():
        each.close()


def python(module: str) -> list[str]:
    """Runs one of the judge's modules, isolated from the current folder and from PYTHON* variables, so that no file
    beside a task is imported."""
    code = _BOOT.format(package=str(SOURCE / "crucible"), packages=package_folders(), module=module)
    return [sys.executable, "-I", "-c", code]


def package_folders() -> list[str]:
    """Where torch, Triton and what they need are installed, also when that is the user's own or named in PYTHONPATH."""
    folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    found = [importlib.util.find_spec(package) for package in ("torch", "triton")]
    folders += [str(Path(spec.origin).parents[1]) for spec in found if spec is not None and spec.origin is not None]
    return list(dict.fromkeys(folders))
