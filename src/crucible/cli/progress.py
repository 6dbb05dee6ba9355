"""Progress on stderr while a command works."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from crucible.report.words import words


class Progress:
    """Progress on stderr: one live line on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()
        self._status = console.status("starting") if console.is_terminal else None

    def __enter__(self) -> Callable[[str], None]:
        if self._status is not None:
            self._status.start()
        return self._say

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _say(self, text: str) -> None:
        line = words(f"{time.monotonic() - self._start:6.1f} s  {(text.splitlines() or [''])[0]}")
        if self._status is not None:
            self._status.update(line[:120])
        else:
            self._console.print(line, soft_wrap=True)
