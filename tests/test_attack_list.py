"""What broke an earlier judge and has no other test of its own: a lost GPU, the system's out-of-memory killer, an ASCII
terminal, advice that has been followed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crucible.errors import JudgeError
from crucible.judge import attempts
from crucible.judge.attempts import Attempts
from crucible.judge.process import supervisor
from crucible.judge.process.limits import Limits
from crucible.task import Task
from support import SMALL_TASK, TESTS, write


def lost(folder: Path) -> Attempts:
    """Attempts on a device that computes nothing: of tensors on `meta` no value can be had."""
    nobody: list[object] = [None] * 5
    return Attempts("meta", folder, Limits(), *nobody, {})  # type: ignore[arg-type]


def test_a_device_that_computes_no_more_ends_the_run_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "PAUSES_S", (0.0, 0.1))
    tried = []
    real = attempts.answers
    monkeypatch.setattr(attempts, "answers", lambda *about: tried.append(real(*about)) or tried[-1])
    with pytest.raises(JudgeError, match=r"the meta device computes no more: reset it \(nvidia-smi --gpu-reset\)"):
        lost(tmp_path)._await_device()
    assert tried == [False, False]


class Killed:
    """A child that Linux kills for its memory, as its counter says."""

    def __init__(self, counter: Path, kills: int) -> None:
        self.counter, self.kills = counter, kills

    def poll(self) -> int:
        self.counter.write_text(f"low 0\noom_kill {self.kills}\n")
        return -signal.SIGKILL


@pytest.mark.parametrize(("kills", "end"), [(1, {"end": "no memory"}), (0, {"end": "exit", "code": -signal.SIGKILL})])
def test_a_kill_by_the_system_is_told_apart_from_any_other(
    kills: int, end: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = write(tmp_path / "memory.events", "low 0\noom_kill 0\n")
    monkeypatch.setattr(supervisor, "OOM_COUNTS", [str(counter)])
    settings = {"pass": [], "judge": os.getppid(), "processes": 9, "memory_bytes": 1 << 40}
    assert supervisor.keep(Killed(counter, kills), settings) == end


def test_a_terminal_of_ascii_alone_takes_every_message(tmp_path: Path) -> None:
    task = write(tmp_path / "größe±.py", "import a_module_nobody_has_±\n")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "CRUCIBLE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "crucible", "judge", str(task), "--device", "cpu"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 2, done.stderr
    assert b"Traceback" not in done.stderr and rb"gr\xf6\xdfe\xb1" in done.stderr


def test_standard_output_takes_what_its_encoding_lacks() -> None:
    code = "from crucible import legible; legible.any_encoding(); print('1 ± 2')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"1 \\xb1 2\n"), done.stderr


def test_who_judges_at_the_small_size_is_not_told_to_do_so() -> None:
    task = Task.load(next(TESTS.parent.glob("tasks/conv3d*")))
    full, small = (task.at(scale=s, training=False, mode="train", small_by_default=False) for s in ("full", "small"))
    assert full.how_to_make_it_smaller == "judge at --scale small"
    assert "--shape" in small.how_to_make_it_smaller
    assert "--shape batch_size=..." in Task.load(SMALL_TASK).how_to_make_it_smaller
