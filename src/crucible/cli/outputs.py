"""Files that a command is asked to write: checked before any work is done, written before anything is shown."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from crucible import store
from crucible.errors import JudgeError, MisuseError
from crucible.interchange import harbor
from crucible.report.junit import junit
from crucible.report.scanning import scanned
from crucible.run import Run
from crucible.task import find_tasks


def check_outputs(files: dict[str, Path | None], inputs: Sequence[Path | None]) -> None:
    """Whether what the user wants written can be, before anything is judged, and would not take the place of something
    else. Raises MisuseError."""
    seen: dict[Path, str] = {}
    for option, file in files.items():
        if file is None:
            continue
        store.check_writable(file, option)
        there = file.resolve()
        if there in seen:
            raise MisuseError(f"{seen[there]} and {option} name the same file {file}: give two")
        seen[there] = option
        for given in inputs:
            if given is not None and there in _files_of(given):
                raise MisuseError(f"{option} {file} is the task or a candidate: name another file")
        if not store.is_device(file) and file.is_file() and not _is_ours(file, option):
            raise MisuseError(f"{option} {file} holds something else and would be lost: name another file")


def _files_of(given: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [file.resolve() for file in ([given] if given.is_file() else given.rglob("*.py"))]
    return []


_OURS = {
    "--json": (b"{", b"["),
    "--sarif": (b"{",),
    "--page": (b"<!doctype html", b"<html"),
    "--junit": (b"<?xml", b"<testsuite"),
    "--reward": (b"{",),
    "--output": (b'"""', b"#", b"import", b"from"),
}
"""How what an option writes begins."""


def _is_ours(file: Path, option: str) -> bool:
    """Whether a file that is there may be what an earlier run wrote; an empty one may always be written."""
    try:
        with file.open("rb") as opened:
            head = opened.read(64).lstrip().lower()
    except OSError:
        return False
    return not head or head.startswith(_OURS[option])


def written(runs: list[Run], files: dict[str, Path | None]) -> list[str]:
    """Writes the files asked for, before anything is shown; what could not be written, in words."""
    trouble: list[str] = []
    for option, file in files.items():
        if file is not None:
            try:
                _WRITERS[option](file, runs)
            except JudgeError as error:
                trouble.append(str(error))
    return trouble


def clear_reward(file: Path, task: Path | None, candidates: list[Path]) -> None:
    """What an earlier run wrote goes first: where this one fails, nobody shall take that for its reward. Raises
    MisuseError where more than one candidate is asked for."""
    if not store.is_device(file):
        file.unlink(missing_ok=True)
    if task is not None and (len(candidates) != 1 or candidates[0].is_dir() or len(find_tasks(task)) != 1):
        raise MisuseError("--reward tells of one candidate of one task: name both files")


def _write_json(file: Path, runs: list[Run]) -> None:
    data = [run.to_json() for run in runs]
    text = json.dumps(data[0] if len(data) == 1 else data, indent=1, allow_nan=False)
    store.write_text(file, f"{text}\n")


def write_page(file: Path, runs: list[Run]) -> None:
    """Raises StoreError."""
    from crucible.report.page.render import render  # loads jinja2: 0.1 s that only a page is worth

    store.write_text(file, render(runs))


_WRITERS: dict[str, Callable[[Path, list[Run]], None]] = {
    "--json": _write_json,
    "--page": write_page,
    "--junit": lambda file, runs: store.write_text(file, junit(runs)),
    "--sarif": lambda file, runs: store.write_text(file, scanned(runs)),
    "--reward": lambda file, runs: store.write_text(file, harbor.reward_text(runs)),
}
"""What is written to the file that an option names. Raises StoreError, and JudgeError where there is no reward."""
