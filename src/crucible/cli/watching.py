"""`--watch`: judge again on save, and say what changed since the last verdicts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

from crucible.cli import exits
from crucible.errors import MisuseError
from crucible.legible import counted
from crucible.report import compared
from crucible.report.words import words
from crucible.run import Run

POLL_S = 0.3
"""A handful of files, looked at so often: an editor that saves by renaming is seen as any other."""
State = dict[Path, str]
"""What each file holds, by digest."""


def watch(
    files: Callable[[], Sequence[Path]],
    judged: Callable[[], list[Run]],
    shown: Callable[[list[Run]], int],
    console: Console,
    wait: Callable[[float], None] = exits.sleep,
) -> NoReturn:
    """Judges, shows, waits for another content of any of `files()`, and again until Ctrl-C, whose exit code is that of
    the last run. What cannot be judged is told, and waited for: a file may be half-written."""
    before: list[Run] = []
    code = 2
    state: State | None = None
    while True:
        state = _next(files, state, console, wait, code)
        try:
            runs = judged()
        except MisuseError as error:
            console.print(words(f"crucible: {error}", style="yellow"), soft_wrap=True)
            continue
        code = shown(runs)
        if any(run.cut_short == "interrupted" for run in runs):
            raise typer.Exit(code)
        for earlier, later in zip(before, runs, strict=False):
            compared.show(earlier, later, console, heading="since the last save")
        before = runs


def _next(
    files: Callable[[], Sequence[Path]],
    state: State | None,
    console: Console,
    wait: Callable[[float], None],
    code: int,
) -> State:
    """What the files hold, once that is another than `state`."""
    if state is None:
        return _state(files)
    console.print(words(f"watching {counted(len(state), 'file')}; Ctrl-C ends"), style="dim")
    try:
        while (now := _state(files)) == state:
            wait(POLL_S)
    except KeyboardInterrupt:
        raise typer.Exit(code) from None
    return now


def _state(files: Callable[[], Sequence[Path]]) -> State:
    try:
        return {file: _digest(file) for file in files()}
    except MisuseError:
        return {}  # the task itself is being replaced


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
