"""A fleet of this machine: a worker killed, then the head, then the same command once more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crucible import store
from crucible.cli import app
from crucible.errors import DeviceError, MisuseError
from crucible.fleet import slots
from crucible.fleet.campaign import judge_on, ledger_file
from crucible.fleet.ledger import Ledger
from crucible.fleet.slots import find_slots, shared_cores
from crucible.judge.process.limits import Limits
from crucible.run import run_from_json
from fleet.fleeting import OPTIONS, children, done, files, wait_for
from support import SMALL_TASK, wait_until_gone

COUNT = 5


def test_worker_and_head_are_killed_and_nothing_is_lost_or_judged_twice(tmp_path: Path, crucible_home: Path) -> None:
    """What was finished before the head was killed is what the next one says, to the last digit."""
    folder = files(tmp_path / "candidates", COUNT)
    arguments = ["judge", str(SMALL_TASK), str(folder), "--on=local", "--workers=1", *OPTIONS]
    command = [sys.executable, "-m", "crucible", *arguments]
    head = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: done(ledger_file()) >= 1)
        (worker,) = children(head.pid, "crucible.fleet.workers")
        os.kill(worker, signal.SIGKILL)
        finished = done(ledger_file())
        wait_for(lambda: done(ledger_file()) > finished)
    finally:
        head.kill()
        said = head.communicate()[1]
    assert "cpu0 lost: worker cpu0 ended by signal 9" in said
    before = Ledger(ledger_file())
    ids = [key for (key,) in before._read("SELECT id FROM submissions WHERE state = 'done'", ())]
    runs = {key: entry.run for key, entry in before.results(ids).items()}
    assert 2 <= len(runs) < COUNT, "killed in the middle"

    again = subprocess.run([*command, f"--json={tmp_path / 'run.json'}"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert f"{COUNT} of {COUNT} done, {COUNT - 1} passed" in again.stderr
    after = Ledger(ledger_file())
    assert {key: entry.run for key, entry in after.results(ids).items()} == runs
    (data,) = store.read_run("latest")
    run = run_from_json(data)
    assert {v.candidate: v.evaluation for v in run.verdicts} == {f"plain{i}": i < COUNT - 1 for i in range(COUNT)}
    assert run.explanations[f"plain{COUNT - 1}"], "explain has something to say of the wrong one"
    assert wait_until_gone(str(crucible_home)) == []


def test_a_task_that_no_worker_can_judge_is_misuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crucible.fleet import local
    from fleet.fleeting import InProcess

    options = {"device": "cpu", "baselines": "none", "limits": Limits(race_s=0.05, shrink_s=0, stress_s=0)}
    monkeypatch.setattr(local, "LocalWorker", lambda slot: InProcess(lambda one: "misuse"))
    with pytest.raises(MisuseError, match="misuse of the batch"):
        judge_on("local", SMALL_TASK, [files(tmp_path / "a", 2)], workers=1, **options)
    assert Ledger(ledger_file()).status().failed == 2


def test_where_a_fleet_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=r"--on slurm: give local, ray or ray://HOST:PORT"):
        judge_on("slurm", SMALL_TASK, [])
    with pytest.raises(MisuseError, match="--workers 0"):
        judge_on("local", SMALL_TASK, [], workers=0)


def test_slots_on_cpus_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr("crucible.hardware.visible_gpus", lambda: ())
    found = find_slots()
    assert [slot.name for slot in found] == ["cpu0", "cpu1", "cpu2", "cpu3"]
    assert [sorted(slot.cores) for slot in found] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert all(slot.environment == {"CUDA_VISIBLE_DEVICES": ""} for slot in found)
    assert [slot.cores for slot in find_slots(6)] == [frozenset()] * 6, "too few for each to have two"
    assert shared_cores(3) == [{0, 1}, {2, 3}, {4, 5}]
    with pytest.raises(DeviceError, match="no NVIDIA GPU"):
        find_slots(device="cuda")


def test_a_slot_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from crucible.hardware import GpuHere

    gpus = tuple(GpuHere(str(i), f"GPU-{i}", "NVIDIA H200", "570") for i in range(2))
    monkeypatch.setattr("crucible.hardware.visible_gpus", lambda: gpus)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    found = find_slots()
    assert [(slot.name, slot.environment["CUDA_VISIBLE_DEVICES"]) for slot in found] == [
        ("gpu0", "GPU-0"),
        ("gpu1", "GPU-1"),
    ]
    assert [len(slot.cores) for slot in found] == [4, 4]
    assert all(slot.kinds == slots.ON_GPU for slot in found)
    assert len(find_slots(1)) == 1
    assert find_slots(device="emulator")[0].kinds == slots.ON_CPU


def test_workers_are_a_fleets() -> None:
    done = CliRunner().invoke(app, ["judge", str(SMALL_TASK), "--workers", "2"])
    assert isinstance(done.exception, MisuseError)
    assert str(done.exception) == "--workers is of a fleet: give --on local, or --on ray, too"
