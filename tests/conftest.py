"""What all tests share: an empty home for each, two tiny tasks, a look at the processes that are alive."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import crucible

TESTS = Path(__file__).parent
SMALL_TASK = TESTS / "data/small_task"
IDENTITY_TASK = TESTS / "data/identity_task"
CHEATS = TESTS / "cheats"
PLAIN = SMALL_TASK / "candidates/plain.py"

Judge = Callable[..., crucible.Verdict]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The tests of a file share judged batches, so with `-n` they go to one worker."""
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadfile"


@pytest.fixture(autouse=True)
def crucible_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for each test: nothing is answered from an earlier run."""
    home = tmp_path / "crucible-home"
    monkeypatch.setenv("CRUCIBLE_HOME", str(home))
    return home


@pytest.fixture(scope="module")
def judge_batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., crucible.Run]]:
    """`crucible.judge` for fixtures that judge many candidates in one run, in a home of its own."""

    def judge(task: Path, candidates: list[Path], **options: Any) -> crucible.Run:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CRUCIBLE_HOME", str(tmp_path_factory.mktemp("home")))
            return crucible.judge(task, candidates, **{"device": "cpu", **options})

    yield judge


@pytest.fixture
def judge_source(tmp_path: Path) -> Judge:
    """Writes a candidate's text to a file and returns the verdict on it."""

    def judge(source: str, task: str | Path = SMALL_TASK, **options: Any) -> crucible.Verdict:
        name = options.pop("name", "candidate_under_test")
        file = write(tmp_path / f"{name}.py", source)
        return crucible.judge(task, [file], **{"device": "cpu", **options}).verdict(name)

    return judge


def write(file: Path, source: str) -> Path:
    """`source`, dedented, in `file`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    return file


def claims(verdict: crucible.Verdict) -> str:
    """All findings of a verdict in one text."""
    return "\n".join(f"{finding.claim}: {finding.evidence}" for finding in verdict.findings)


def processes_mentioning(text: str) -> list[str]:
    """Command lines of the live processes, this one aside, with `text` in their arguments or environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if command and text.encode() in command + environment:
            found.append(command.replace(b"\0", b" ").decode(errors="replace")[:200])
    return found


def wait_until_gone(text: str, seconds: float = 5.0) -> list[str]:
    """What is still alive after at most `seconds`; empty as soon as nothing is."""
    deadline = time.monotonic() + seconds
    while (left := processes_mentioning(text)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left
