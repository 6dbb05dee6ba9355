"""What is timed has its GPU or its cores for itself among the judge's runs on a machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from crucible.hardware import GpuHere
from crucible.judge.timing import undisturbed as module
from crucible.judge.timing.undisturbed import undisturbed


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def most_at_once(count: int, device: str = "cpu") -> int:
    """Of so many that want to time at the same moment, how many did."""
    inside, most, guard = 0, 0, threading.Lock()

    def time_something() -> None:
        nonlocal inside, most
        with undisturbed(device):
            with guard:
                inside += 1
                most = max(most, inside)
            threading.Event().wait(0.05)
            with guard:
                inside -= 1

    threads = [threading.Thread(target=time_something) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return most


def test_one_at_a_time_for_each_core_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_at_once(6) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert most_at_once(4) == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert most_at_once(3) == 1, "PyTorch takes all cores"


def test_one_at_a_time_on_a_gpu_and_others_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = tuple(GpuHere(str(i), f"GPU-{i}", "NVIDIA H200", "570") for i in range(2))
    monkeypatch.setattr("crucible.hardware.visible_gpus", lambda: gpus)
    assert most_at_once(3, "cuda") == 1
    with undisturbed("cuda"):
        monkeypatch.setattr("crucible.hardware.visible_gpus", lambda: gpus[1:])
        with undisturbed("cuda"):
            pass


def _hold(folder: str, ready: Any, release: Any) -> None:
    module.FOLDER = Path(folder)
    os.environ["OMP_NUM_THREADS"] = "1"
    with undisturbed("cpu"):
        ready.set()
        release.wait()


def test_another_process_is_waited_for_and_no_longer_than_bearable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was killed holds nothing: the system gives its locks back."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {min(REAL_CORES)})
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(folder), ready, release))
    other.start()
    assert ready.wait(60)
    said: list[str] = []
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    monkeypatch.setattr(module, "_TOLD_S", 0.1)
    with undisturbed("cpu", said.append):
        pass
    assert said[0] == "waiting: something else is timed on this machine"
    assert said[1].startswith("something else is timed on this machine for 0 s: timing goes on beside it")
    other.kill()
    other.join()
    said.clear()
    with undisturbed("cpu", said.append):
        pass
    assert said == []


REAL_CORES = os.sched_getaffinity(0)


def test_a_lock_that_cannot_be_had_is_told_and_timing_goes_on(folder: Path) -> None:
    """A link where the lock should be is not followed: whoever planted it wants something."""
    (folder / "crucible-timing-cpu0.lock").symlink_to(folder / "elsewhere")
    said: list[str] = []
    with undisturbed("cpu", said.append):
        pass
    assert len(said) == 1 and said[0].startswith("no lock for cpu0")
    assert not (folder / "elsewhere").exists()
