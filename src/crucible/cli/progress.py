"""Progress on stderr while a command works: what is running, how far it is, how long it may still take."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import Progress as Live
from rich.progress import ProgressColumn, SpinnerColumn, Task
from rich.text import Text

from crucible.report.words import words
from crucible.underway import Step, in_words, left_s

LEAST_LINE = 20
"""Terminal columns of what is running."""


class _Line(ProgressColumn):
    """Elapsed time, how far, what is running: one line, whatever others had a part in its text."""

    def __init__(self, console: Console, line: Callable[[], str]) -> None:
        super().__init__()
        self._console, self._line = console, line

    def render(self, task: Task) -> Text:
        text = words(self._line())
        text.truncate(max(LEAST_LINE, self._console.width - 4), overflow="ellipsis")
        return text


class Progress:
    """One live line on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._start = clock()
        self._text = "starting"
        self._step: Step | None = None
        self._first = self._start
        """When the first candidate's turn came: what is prepared for all of them says nothing of the others."""
        self._live: Live | None = None
        if console.is_terminal:
            columns = (SpinnerColumn(), _Line(console, self.line))
            self._live = Live(*columns, console=console, transient=True, refresh_per_second=4)

    def __enter__(self) -> Callable[[str], None]:
        if self._live is not None:
            self._live.add_task("")
            self._live.start()
        return self.say

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Takes one line; a `Step` says how far the run is too."""
        if isinstance(text, Step):
            self._first = self._clock() if self._step is None else self._first
            self._step = text
        self._text = (text.splitlines() or [""])[0]
        if self._live is None:
            self._console.print(words(self.line()), soft_wrap=True)

    def line(self) -> str:
        """`  12.3 s  [3/10, about 2 min left]  judging one_kernel`."""
        now, step = self._clock(), self._step
        how_far = ""
        if step is not None and step.total > 1:
            left = left_s(step.done, step.total, now - self._first)
            how_far = f"[{step.done}/{step.total}{f', about {in_words(left)} left' if left else ''}]  "
        return f"{now - self._start:6.1f} s  {how_far}{self._text}"
