"""`crucible judge --watch`: again on save, what changed since, an end by Ctrl-C."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from rich.console import Console

from crucible.cli.judge import watched
from crucible.cli.watching import watch
from crucible.errors import MisuseError, TaskError
from crucible.judge.verdict.verdict import Passed, Verdict, Wrong
from crucible.run import Run
from support import PLAIN, SMALL_TASK
from test_table import a_run


def watching(file: Path, saves: list[Callable[[], None]], judged: Callable[[], list[Run]]) -> tuple[int, str]:
    """With each wait one save, then Ctrl-C; the exit code and what was said."""

    def wait(_: float) -> None:
        if not saves:
            raise KeyboardInterrupt
        saves.pop(0)()

    text = io.StringIO()
    console = Console(file=text, width=100, color_system=None)
    with pytest.raises(typer.Exit) as end:
        watch(lambda: [file], judged, lambda runs: 0 if runs[0].passed else 1, console, wait)
    return end.value.exit_code, text.getvalue()


def test_each_save_is_judged_and_the_difference_told(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("right")

    def judged() -> list[Run]:
        right = file.read_text() == "right"
        return [a_run(Verdict("kernel", Passed() if right else Wrong("forward", "output is off by 3")))]

    saves = [lambda: os.utime(file), lambda: file.write_text("wrong"), lambda: file.write_text("right")]  # type: ignore[list-item]
    code, text = watching(file, saves, judged)  # type: ignore[arg-type]
    assert code == 0
    assert text.count("since the last save") == 2  # a new time of the same content is no save
    assert "1 changed, 0 candidates as before" in text
    assert text.index("wrong forward") < text.rindex("since the last save")


def test_what_cannot_be_judged_is_told_and_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "task.py"
    file.write_text("def (")

    def judged() -> list[Run]:
        if file.read_text() == "def (":
            raise TaskError("task.py is not valid Python")
        return [a_run(Verdict("kernel", Wrong("forward", "output is off by 3")))]

    assert watching(file, [], judged) == (2, "crucible: task.py is not valid Python\nwatching 1 file; Ctrl-C ends\n")
    code, text = watching(file, [lambda: file.write_text("x = 1")], judged)  # type: ignore[arg-type, list-item, return-value]
    assert code == 1 and "since" not in text


def test_new_candidates_and_the_task_itself_are_watched(tmp_path: Path) -> None:
    shutil.copytree(SMALL_TASK, tmp_path / "task")
    (tmp_path / "task/candidates").mkdir(exist_ok=True)
    before = watched(tmp_path / "task", [])
    (tmp_path / "task/candidates/another.py").touch()
    assert set(watched(tmp_path / "task", [])) - set(before) == {tmp_path / "task/candidates/another.py"}
    assert tmp_path / "task/reference.py" in before
    assert watched(tmp_path / "task", [PLAIN]) == sorted([tmp_path / "task/reference.py", PLAIN])
    with pytest.raises(MisuseError):
        watched(tmp_path / "nothing", [])


DROPPED = """
import signal, sys
from pathlib import Path
import typer
from rich.console import Console
from crucible.cli import exits
from crucible.cli.watching import watch

class Dropped:
    def __del__(self):
        signal.raise_signal(getattr(signal, name))

def judged():
    Dropped()
    return []

app = typer.Typer()
app.command()(lambda: watch(lambda: [Path(sys.argv[0])], judged, lambda runs: 0, Console()))
sys.argv[1:], name = [], sys.argv[1]
exits.run(app)
"""
"""Python says "Exception ignored in" of what is raised in a `__del__`, and goes on."""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_ctrl_c_ends_it_where_python_dropped_the_exception(tmp_path: Path, name: str) -> None:
    script = tmp_path / "watching.py"
    script.write_text(DROPPED)
    untraced = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE")}  # it takes SIGTERM
    command = [sys.executable, script, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=untraced)
    assert "ignored" in done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_an_editors_save_is_seen_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    candidate = tmp_path / "mine.py"
    shutil.copy(PLAIN, candidate)
    options = ["--watch", "--device", "cpu", "--baselines", "none", "--race-limit", "0.05", "--stress-limit", "0"]
    command = [sys.executable, "-m", "crucible", "judge", str(SMALL_TASK), str(candidate), *options]
    told = tmp_path / "told.txt"
    with told.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            until(told, "watching 2 files; Ctrl-C ends")
            new = tmp_path / "saved.tmp"
            new.write_text("x = ")
            new.replace(candidate)
            until(told, "since the last save")
            until(told, "watching 2 files; Ctrl-C ends", 2)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 1
        finally:
            process.kill()
    assert "does not import" in told.read_text()


def until(file: Path, text: str, times: int = 1) -> None:
    deadline = time.monotonic() + 120
    while file.read_text().count(text) < times:
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.1)
