"""What the doctor says of this machine, and of machines that lack something."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from crucible import doctor, hardware
from crucible.cli import app
from crucible.doctor import examined
from crucible.hardware import Device
from crucible.judge.process import namespaces, sandbox, seccomp
from crucible.judge.process.doors import NAMES, doors

CPU = Device("cpu", "a processor", "")
needs_both = pytest.mark.skipif(bool(sandbox.layers().missing), reason=sandbox.layers().missing)


@needs_both
def test_a_machine_with_all_is_told_so_with_exit_code_0() -> None:
    done = CliRunner().invoke(app, ["doctor"])
    if hardware.find_device().kind == "cpu" and sandbox.landlock_abi() >= 6:
        assert done.exit_code == 0, done.output
        assert "missing" not in done.output
    assert f"{len(doors())} ways out tried, none open" in done.output


def test_a_kernel_without_landlock_is_a_complaint_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "landlock_abi", lambda: 0)
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "missing: this kernel has no Landlock (Linux 5.13 and later): candidates can read and write" in done.output
    assert "or give a container a filter of system calls that lets landlock_* through" in " ".join(done.output.split())


@pytest.mark.skipif(sandbox.landlock_abi() == 0, reason="this kernel has no Landlock")
def test_doors_that_the_missing_half_would_shut_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "is_available", lambda: False)
    health = examined(CPU)
    assert health.rows["sandbox"].startswith(f"Landlock version {sandbox.landlock_abi()}: {len(doors())} ways out")
    assert "none open" not in health.rows["sandbox"]
    (complaint,) = health.complaints
    assert "no filters of system calls" in complaint and "judge in a container without a network" in complaint


def test_missing_compilers_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor.sys, "executable", str(tmp_path / "python"))  # beside which no ninja stands
    monkeypatch.setenv("CXX", "a-compiler-nobody-has")
    health = doctor.Health()
    doctor._compilers(CPU, health)
    assert [words.partition(":")[0] for words in health.complaints] == ["a C++ compiler", "ninja"]


@pytest.mark.skipif(hardware.find_device().kind == "cuda", reason="CUDA starts here")
def test_cuda_that_fails_outside_as_well_is_not_blamed_on_the_sandbox() -> None:
    """As on a machine whose driver is broken: here there is none."""
    health = examined(Device("cuda", "NVIDIA H200", "570"))
    assert health.rows["CUDA"].startswith("in the sandbox: libcuda.so.1 cannot be loaded")
    assert any(words.startswith("CUDA, outside of the sandbox as well") for words in health.complaints)


@needs_both
def test_a_system_without_namespaces_is_told_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    shut = doctor.probe(sandbox.layers(), gpu=False)
    bare = doctor.Probe(shut.doors, {**shut.needs, doctor.SEMAPHORES: "PermissionError"}, "", False)
    health = doctor.Health()
    doctor._needs(bare, health)
    doctor._doors(doctor.Probe({**shut.doors, NAMES: "open"}, {}, "", False), sandbox.layers(), health)
    assert health.complaints == []
    assert "candidates have no shared memory" in health.rows["namespaces"]
    doctor._needs(doctor.Probe(shut.doors, {"threads": "OSError: no"}, "", True), health)
    assert health.complaints == ["threads, in the sandbox: OSError: no; honest candidates fail"]


def test_where_namespaces_cannot_be_had_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    monkeypatch.setattr(namespaces, "_as_root", lambda: False)
    monkeypatch.setattr(namespaces, "_as_user", lambda: False)
    assert namespaces.enter() is False
    assert Path("/proc/self/mountinfo").read_text() == before


@needs_both
@pytest.mark.skipif(hardware.find_device().kind == "cuda", reason="CUDA starts here")
def test_the_layer_that_stops_cuda_is_found_by_trying_each_alone() -> None:
    """Without a driver the first that is tried, by none of the two layers, fails already."""
    assert doctor._stopped_by() == "namespaces, or capabilities that it lacks"
