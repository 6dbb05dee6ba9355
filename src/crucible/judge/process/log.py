"""What a process prints, of which both ends are kept."""

from __future__ import annotations

import os
import threading

SILENT = "it said nothing"
LOG_BYTES = 32 << 10
"""Kept of what a candidate prints: as much from the beginning as from the end."""


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

    @property
    def last_words(self) -> str:
        """The last line."""
        return (self.text.strip().splitlines() or [SILENT])[-1]

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
