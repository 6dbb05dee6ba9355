"""What the fleet's tests share: submissions that a CPU judges in a second, a worker that does as it is told."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crucible import store
from crucible.errors import ProcessLostError
from crucible.fleet.ledger import Ledger
from crucible.fleet.submission import Submission
from support import PLAIN, SMALL_TASK, write

QUICK: dict[str, Any] = {
    "device": "cpu", "baselines": "none", "limits": {"race_s": 0.3, "shrink_s": 0, "stress_s": 0}
}  # fmt: skip
OPTIONS = ("--device=cpu", "--baselines=none", "--race-limit=0.05", "--shrink-limit=0", "--stress-limit=0")
"""The same for the command line."""
Judged = Callable[[dict[str, Any]], str]
"""What comes of a submission: `passed`, `wrong`, `failed`, `dies` (the worker), `trouble` (of the whole batch)."""


def small(number: int, *, right: bool = True, **options: Any) -> Submission:
    """A candidate of the small task, different from those of other numbers."""
    task = (SMALL_TASK / "reference.py").read_text()
    return Submission("small_task", task, f"plain{number}", text(number, right), {**QUICK, **options})


def text(number: int, right: bool = True) -> str:
    plain = PLAIN.read_text()
    return f"{plain if right else plain.replace('+ self.bias', '- self.bias')}\n# {number}\n"


def files(folder: Path, count: int) -> Path:
    """So many candidates of the small task as files; the last is wrong."""
    for number in range(count):
        write(folder / f"plain{number}.py", text(number, number < count - 1))
    return folder


def record(passed: bool) -> dict[str, Any]:
    return {"candidates": [{"evaluation": passed}]}


class InProcess:
    """A worker without a process: what becomes of a submission is decided by a function."""

    def __init__(self, judged: Judged, name: str = "w0", *, trouble: Sequence[str] = (), judge: str = "") -> None:
        """`trouble`: of its device, start by start; well after that. `judge` is the version that it runs."""
        self.name = name
        self.kinds = frozenset({"auto", "cpu"})
        self.starts = 0
        self.batches: list[list[str]] = []
        self._judged = judged
        self._troubles = list(trouble)
        self._judge = judge or store.code_digest()
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()

    def start(self, *, probe: bool) -> None:
        self.starts += 1
        self._events = queue.Queue()
        trouble = self._troubles.pop(0) if self._troubles else ""
        ready = {"event": "ready", "process": 1, "judge": self._judge, "device": {"name": "stand-in"}}
        self._events.put({**ready, "trouble": trouble})

    def give(self, batch: Sequence[dict[str, Any]], fresh: bool) -> None:
        self.batches.append([one["candidate_name"] for one in batch])
        for number, one in enumerate(batch):
            what = self._judged(one)
            if what == "dies":
                self._events.put({"event": "lost"})
                return
            if what in ("trouble", "misuse"):
                self._events.put({"event": "ended", "reason": f"{what} of the batch", "final": what == "misuse"})
                return
            if what == "failed":
                self._events.put({"event": "failed", "number": number, "reason": "out of memory"})
            else:
                self._events.put({"event": "judged", "number": number, "run": record(what == "passed")})
        self._events.put({"event": "ended", "reason": "", "final": False})

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if event["event"] == "lost":
            raise ProcessLostError(f"{self.name} ended by signal 9")
        return event

    def close(self) -> None:
        pass


def done(ledger: Path) -> int:
    """Verdicts in a ledger that somebody else writes; 0 before there is one."""
    return Ledger(ledger).status().done if ledger.exists() else 0


def children(process: int, containing: str) -> list[int]:
    """Processes below one, at any depth, by what is in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if parent_of(int(folder.name)) == process:
                fits = containing in (folder / "cmdline").read_bytes().decode(errors="replace")
                found += [int(folder.name)] if fits else children(int(folder.name), containing)
    return found


def wait_for(true: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
