"""The fleet over Ray: an actor killed, then the driver, then the same command once more. Run where Ray is installed."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from crucible.errors import DeviceError, MisuseError
from crucible.fleet.campaign import judge_on, ledger_file
from crucible.fleet.ledger import Ledger
from crucible.fleet.on_ray import _places
from fleet.fleeting import OPTIONS, children, done, files, parent_of, wait_for
from support import SMALL_TASK, wait_until_gone

COUNT = 4


@pytest.mark.slow
def test_actor_and_driver_are_killed_and_nothing_is_lost_or_judged_twice(
    tmp_path: Path, crucible_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="pip install 'crucible-kernels[fleet]'")
    monkeypatch.setenv("RAY_TMPDIR", tempfile.mkdtemp(prefix="cr"))  # no cluster of others; sockets have short names
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    folder = files(tmp_path / "candidates", COUNT)
    arguments = ["judge", str(SMALL_TASK), str(folder), "--on=ray", "--workers=1", *OPTIONS]
    command = [sys.executable, "-m", "crucible", *arguments]
    head = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: done(ledger_file()) >= 1)
        (worker,) = children(head.pid, "crucible.fleet.workers")
        os.kill(parent_of(worker), signal.SIGKILL)
        finished = done(ledger_file())
        wait_for(lambda: done(ledger_file()) > finished)
    finally:
        head.kill()
        said = head.communicate()[1]
    assert "the actor of cpu0 is lost" in said
    before = {key: entry for key, entry in all_of(Ledger(ledger_file())).items() if entry[0] == "done"}
    assert 2 <= len(before) < COUNT, "killed in the middle"

    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    after = all_of(Ledger(ledger_file()))
    assert {key: after[key] for key in before} == before
    assert sorted(state for state, _ in after.values()) == ["done"] * COUNT
    assert f"{COUNT} of {COUNT} done, {COUNT - 1} passed" in again.stderr
    assert wait_until_gone(str(crucible_home), 30) == [], "actors end with their driver"
    shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


def all_of(ledger: Ledger) -> dict[str, tuple[str, str]]:
    return {key: (state, run) for key, state, run in ledger._read("SELECT id, state, run FROM submissions", ())}


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MisuseError, match=r"needs Ray: pip install 'crucible-kernels\[fleet\]'"):
        judge_on("ray", SMALL_TASK, [])


def test_places_are_one_a_gpu_else_two_cores() -> None:
    gpus = {"gpus": ["NVIDIA H200", "NVIDIA H200"], "cpu": "CPU: x", "GPU": 2.0, "CPU": 16.0}
    plain = {"gpus": [], "cpu": "CPU: y", "CPU": 8.0}
    found = _places([gpus, plain], None, "auto")
    assert [(place.slot.name, place.gpus, place.devices) for place in found] == [
        ("gpu0", 1, ["NVIDIA H200", "NVIDIA H200"]),
        ("gpu1", 1, ["NVIDIA H200", "NVIDIA H200"]),
    ]
    assert len(_places([gpus, plain], 1, "cuda")) == 1
    on_cpus = _places([gpus, plain], None, "emulator")
    assert len(on_cpus) == 12
    assert {(place.gpus, place.cores) for place in on_cpus} == {(0, 2)}
    assert [place.cores for place in _places([{"gpus": [], "cpu": "", "CPU": 2.0}], 2, "cpu")] == [1, 1]
    with pytest.raises(DeviceError, match="no GPU in the Ray cluster"):
        _places([plain], None, "cuda")
