"""A worker's process as the fleet sees it: started, given batches, listened to, ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

from crucible.errors import ProcessLostError
from crucible.fleet.slots import Slot

END_S = 25.0
"""For a worker to end in order."""


class WorkerProcess:
    """The worker of one slot. After a ProcessLostError, `close` and start again."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self._process: subprocess.Popen[str] | None = None
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def start(self, *, probe: bool) -> None:
        """Starts it; once it is `ready` it says so. With `probe`, it tries first whether its device computes. Raises
        ProcessLostError."""
        self._events = queue.Queue()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "crucible.fleet.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **self.slot.environment},
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is for whoever started the fleet, who ends its workers in order
            )
        except OSError as error:
            raise ProcessLostError(f"worker {self.slot.name} cannot be started: {error}") from error
        assert self._process.stdout is not None
        threading.Thread(target=_listen, args=(self._process.stdout, self._events), daemon=True).start()
        device = "auto" if self.slot.environment.get("CUDA_VISIBLE_DEVICES", "-") else "cpu"
        self._write({"cores": sorted(self.slot.cores), "device": device, "probe": probe})

    def give(self, batch: Sequence[dict[str, Any]], fresh: bool) -> None:
        """Submissions, as JSON, to judge in one run. Raises ProcessLostError."""
        self._write({"batch": list(batch), "fresh": fresh})

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """What it says next; None where it says nothing for so long. Raises ProcessLostError once it has ended."""
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if event is None:
            self._events.put(None)
            raise self._lost()
        return event

    def close(self, wait_s: float = END_S) -> None:
        """Ends it in order, or else by force; safe to call once more."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _write(self, data: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            raise ProcessLostError(f"worker {self.slot.name} is not there")
        try:
            self._process.stdin.write(json.dumps(data) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._lost() from error

    def _lost(self) -> ProcessLostError:
        process = self._process
        code = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(1.0)
        how = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}"
        return ProcessLostError(f"worker {self.slot.name} ended {how}")


def _listen(stream: IO[str], events: queue.Queue[dict[str, Any] | None]) -> None:
    """Whole lines alone: the last one of a process that was killed may be half of one."""
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            events.put(json.loads(line))
    events.put(None)
