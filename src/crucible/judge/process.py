"""The judge's end of the process boundary: starts, asks, limits and kills the other two processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible import hardware
from crucible.errors import JudgeError, TaskError
from crucible.judge import sandbox
from crucible.judge.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout, pair
from crucible.judge.verdict import Cheated, Crashed, Outcome, OutOfMemory, TimedOut

SOURCE = Path(__file__).resolve().parents[2]
_BOOT = "import sys; sys.path.insert(0, {path!r}); from crucible.judge.{module} import main; main()"
_KEPT_ENVIRONMENT = {"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CC", "CXX", "MAX_JOBS", "OMP_NUM_THREADS"} | {
    f"CUDA_{name}" for name in ("HOME", "PATH", "VISIBLE_DEVICES")
}
_KEPT_PREFIXES = ("NVIDIA_", "TORCH_CUDA_ARCH_LIST")
_SYSTEM = ["/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/run", "/var/lib"]
PIPE_BYTES = 1 << 20
"""What Linux gives an unprivileged pipe at most; the default is a sixteenth."""
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
    memory_bytes: int = 0
    """Resident memory of the candidate's process tree; 0 stands for three quarters of the machine's."""
    processes: int = 256
    """Processes alive at a time (a parallel build needs dozens)."""
    file_bytes: int = 4 << 30
    """Size of any one file it writes."""

    @property
    def memory(self) -> int:
        return self.memory_bytes or hardware.memory_bytes() * 3 // 4


class Ended(Exception):
    """A candidate's process is over, with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.words)
        self.outcome = outcome


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


class CandidateProcess:
    """A candidate's process group: a keeper, the worker, and whatever that starts."""

    def __init__(self, settings: dict[str, Any], folder: Path, readable: list[str], limits: Limits) -> None:
        self.limits = limits
        self.dead = False
        self.stages_s: dict[str, float] = {}
        """Seconds waited for each stage's answers."""
        ours, theirs = pair()
        self.channel = Channel(ours)
        self.results, stream = os.pipe()
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._status, status = os.pipe()
        log, output = os.pipe()
        for name in ("home", "tmp", "extensions"):
            (folder / name).mkdir(parents=True)
        settings = {
            **settings,
            "channel": theirs.fileno(),
            "stream": stream,
            "confine": sandbox.landlock_abi() > 0,
            "readable": [*_SYSTEM, *_python_folders(), *readable],
            "writable": [str(folder), "/dev"],
            "file_bytes": limits.file_bytes,
        }
        worker = [
            sys.executable,
            "-I",
            "-c",
            _BOOT.format(path=str(SOURCE), module="worker"),
            json.dumps(settings),
        ]
        keeper = {
            "argv": worker,
            "pass": [theirs.fileno(), stream],
            "status": status,
            "judge": os.getpid(),
            "memory_bytes": limits.memory,
            "processes": limits.processes,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT.format(path=str(SOURCE), module="keeper"), json.dumps(keeper)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(), stream, status),
            cwd=folder,
            env=_environment(folder, settings["header"]),
            start_new_session=True,
        )
        theirs.close()
        for descriptor in (stream, status, output):
            os.close(descriptor)
        self.log = Log(log)
        secret = secrets.token_hex(16)
        with contextlib.suppress(ChannelClosed):
            self.channel.send({"secret": secret})
        self.channel.secret = secret
        self._await_start()

    def ask(self, request: dict[str, Any], stage: str, limit_s: float) -> dict[str, Any]:
        """Sends a request and waits for its answer. Raises Ended when the process is over or was ended."""
        self.start(request)
        return self.answer(stage, limit_s)

    def start(self, request: dict[str, Any]) -> None:
        """Sends a request without waiting; a dead process is noticed at `answer`."""
        with contextlib.suppress(ChannelClosed):
            self.channel.send(request)

    def answer(self, stage: str, limit_s: float) -> dict[str, Any]:
        """The answer to what was asked. Raises Ended."""
        start = time.monotonic()
        try:
            return self.channel.receive(limit_s)
        except ChannelTimeout:
            self.kill()
            raise Ended(TimedOut(stage, limit_s)) from None
        except BadMessage as error:
            self.kill()
            raise Ended(Cheated("forged message", str(error))) from None
        except ChannelClosed:
            raise Ended(self._how_it_ended(stage)) from None
        finally:
            self.stages_s[stage] = self.stages_s.get(stage, 0.0) + time.monotonic() - start

    def kill(self) -> None:
        """Ends the whole tree with SIGKILL; safe to call twice and from another thread."""
        if self.dead:
            return
        self.dead = True
        self._process.terminate()  # the keeper kills everything below it, orphans included
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(OSError):
            os.close(self.results)
        self.log.finish()

    def _await_start(self) -> None:
        """Waits until the worker is up; what fails before it has read the candidate is the judge's failure."""
        try:
            self.answer("start", self.limits.build_s)
        except Ended as ended:
            last = self.log.text.strip().splitlines()[-1:] or ["it said nothing"]
            raise JudgeError(f"a candidate's process could not start ({ended.outcome.words}): {last[0]}") from ended

    def _how_it_ended(self, stage: str) -> Outcome:
        """What the keeper says of a process that hung up."""
        text = b""
        deadline = time.monotonic() + 10
        while (
            not text.endswith(b"\n") and select.select([self._status], [], [], max(0, deadline - time.monotonic()))[0]
        ):
            data = os.read(self._status, 4096)
            if not data:
                break
            text += data
        self.kill()
        end = json.loads(text or b"{}")
        if end.get("end") == "memory":
            return OutOfMemory(
                f"its processes held {end['bytes'] >> 20} MiB in {stage}; the limit is {self.limits.memory >> 20}"
            )
        if end.get("end") == "processes":
            return Cheated("forked", f"{end['count']} processes in {stage}; the limit is {self.limits.processes}")
        code = end.get("code")
        if code == 0:
            return Cheated("early exit", f"its process ended itself in {stage}, exit code 0, before it was judged")
        return Crashed(stage, _exit_in_words(code))


class OracleProcess:
    """The oracle, as the judge sees it."""

    def __init__(self, vault: Path) -> None:
        ours, theirs = pair()
        self._channel = Channel(ours)
        self._vault = vault
        self._log_read, output = os.pipe()
        command = [
            sys.executable,
            "-c",
            _BOOT.format(path=str(SOURCE), module="oracle"),
            str(theirs.fileno()),
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        os.close(output)
        self.log = Log(self._log_read)

    def prepare(self, request: dict[str, Any], say: Callable[[str], None], limit_s: float) -> dict[str, Any]:
        """The description of the task's cases. Raises TaskError or JudgeError."""
        self._channel.send({"do": "prepare", "vault": str(self._vault), **request})
        deadline = time.monotonic() + limit_s
        while True:
            reply = self._receive(
                max(0.0, deadline - time.monotonic()), f"the reference's answers took over {limit_s:g} s"
            )
            if "progress" in reply:
                say(reply["progress"])
            elif "error" in reply:
                error = reply["error"]
                raise (TaskError if error["kind"] == "task" else JudgeError)(error["message"])
            else:
                return dict(reply["ready"])

    def attach(self, results: int) -> None:
        """Hands the oracle the reading end of a candidate's stream."""
        self._channel.send({"do": "attach"}, (results,))

    def detach(self) -> None:
        self._channel.send({"do": "detach"})

    def start_compare(self, case: int, part: str, names: list[str]) -> None:
        self._channel.send({"do": "compare", "case": case, "part": part, "names": names})

    def compared(self, limit_s: float) -> dict[str, Any]:
        """The result of the comparison that was started. Raises JudgeError."""
        return self._receive(limit_s, f"a comparison took over {limit_s:g} s")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.log.finish()

    def _receive(self, limit_s: float, late: str) -> dict[str, Any]:
        try:
            return self._channel.receive(limit_s)
        except ChannelTimeout:
            raise JudgeError(f"{late}: raise the limit (--oracle-limit), or judge at --scale small") from None
        except (ChannelClosed, BadMessage) as error:
            code = self._process.poll() if self._process.poll() is not None else self._process.wait()
            self.log.finish()
            last = self.log.text.strip().splitlines()[-1:] or ["it said nothing"]
            raise JudgeError(f"the oracle's process ended ({_exit_in_words(code)}): {last[0]}") from error


def _exit_in_words(code: int | None) -> str:
    if code is None:
        return "its process vanished"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _python_folders() -> list[str]:
    """What a worker must read to be Python with torch: installations, not the judge's own checkout."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, str(SOURCE / "crucible")}
    folders |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    folders |= {str(Path(tool).resolve().parents[1]) for tool in [hardware.nvcc()] if tool}
    folders |= {path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path}
    return sorted(folders)


def _environment(folder: Path, header: str) -> dict[str, str]:
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
        "PYTHONDONTWRITEBYTECODE": "1",
        **({"CPATH": header} if header else {}),
    }
