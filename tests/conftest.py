"""What all tests share: an empty home for each, two tiny tasks, a look at the processes that are alive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import crucible
from support import SMALL_TASK, TESTS, Judge, write

QUICK: dict[str, Any] = {"device": "cpu", "baselines": "none", "limits": crucible.Limits(race_s=0.3)}
"""A race of the fewest rounds: most tests are about verdicts."""
os.environ.setdefault("OMP_NUM_THREADS", "1")
"""For all that judge and candidates start: threads of two processes on two cores wait for each other (a plain pass
takes 4.3 s of processor time with one, 5.3 with two)."""
LONGEST = (
    "test_tasks",
    "test_cheats",
    "test_corpus",
    "test_bad_input",
    "test_baselines",
    "test_loading",
    "test_emulated",
)
"""Files of over a minute: they start first, so that the end of a run with `-n` is not one of them alone."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The tests of a file share judged batches, so with `-n` they go to one worker."""
    os.environ.setdefault("CRUCIBLE_EMULATOR_HOME", str(TESTS.parent / "build/emulator"))  # half a minute to make
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


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
            return crucible.judge(task, candidates, **{**QUICK, **options})

    yield judge


@pytest.fixture
def judge_source(tmp_path: Path) -> Judge:
    """Writes a candidate's text to a file and returns the verdict on it."""

    def judge(source: str, task: str | Path = SMALL_TASK, **options: Any) -> crucible.Verdict:
        name = options.pop("name", "candidate_under_test")
        file = write(tmp_path / f"{name}.py", source)
        return crucible.judge(task, [file], **{**QUICK, **options}).verdict(name)

    return judge
