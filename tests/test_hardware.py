"""The machine as it is, and an error for what it has not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crucible import hardware
from crucible.errors import DeviceError
from crucible.hardware import Device, find_device

TWO_GPUS = "echo '0, GPU-aaaa, 570.86.15, NVIDIA H200'; echo '1, GPU-bbbb, 570.86.15, NVIDIA L4'"


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Nothing found under a test's own PATH is remembered."""
    caches = [f for f in vars(hardware).values() if hasattr(f, "cache_clear")]
    assert caches
    for function in caches:
        function.cache_clear()
    yield
    for function in caches:
        function.cache_clear()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a shell script in front of all else on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def put(name: str, script: str) -> None:
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    return put


def test_a_gpu_is_what_nvidia_smi_says_first(program: Callable[[str, str], None]) -> None:
    program("nvidia-smi", TWO_GPUS)
    found = Device("cuda", "NVIDIA H200", "570.86.15")
    assert find_device() == find_device("cuda") == found
    assert found.name == "NVIDIA H200"
    assert find_device("cpu").kind == "cpu"


@pytest.mark.parametrize(
    "visible, names",
    [
        ("1", ["NVIDIA L4"]),
        ("1,0", ["NVIDIA L4", "NVIDIA H200"]),
        ("GPU-bbbb", ["NVIDIA L4"]),
        ("", []),
        ("NoDevFiles", []),
        ("MIG-cccc", ["NVIDIA H200"]),
    ],
)
def test_a_process_sees_the_gpus_that_it_is_given(
    program: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, visible: str, names: list[str]
) -> None:
    program("nvidia-smi", TWO_GPUS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.name for gpu in hardware.visible_gpus()] == names
    assert find_device().name.startswith(names[0] if names else "CPU")


@pytest.mark.parametrize("script", ["exit 9", "true", "kill -9 $$"])
def test_without_a_gpu_the_processor_is_the_device(program: Callable[[str, str], None], script: str) -> None:
    program("nvidia-smi", script)
    found = find_device()
    assert found.kind == "cpu"
    assert found.name.startswith("CPU: ")
    assert found.driver == os.uname().release


def test_a_gpu_that_is_not_here_is_an_error(program: Callable[[str, str], None]) -> None:
    program("nvidia-smi", "exit 9")
    with pytest.raises(DeviceError, match=r"no NVIDIA GPU on this machine.*--device cpu"):
        find_device("cuda")


def test_a_device_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(DeviceError, match="choose auto, cuda, cpu or emulator"):
        find_device("tpu")


def test_versions_name_what_computes_and_compiles(program: Callable[[str, str], None]) -> None:
    program("nvcc", "echo 'nvcc: NVIDIA (R)'; echo 'Cuda compilation tools, release 13.0, V13.0.1'")
    program("g++", "echo 'g++ (Debian) 12.2.0'; echo more")
    found = hardware.versions()
    assert list(found) == ["python", "torch", "triton", "crucible-kernels", "nvcc", "g++"]
    assert found["nvcc"] == "Cuda compilation tools, release 13.0, V13.0.1"
    assert found["g++"] == "g++ (Debian) 12.2.0"
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["torch"][0].isdigit()


def test_what_is_not_installed_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert hardware.nvcc() == ""
    found = hardware.versions()
    assert (found["nvcc"], found["g++"]) == ("-", "-")


def test_a_compiler_that_cannot_be_run_has_no_version(program: Callable[[str, str], None]) -> None:
    program("g++", "exit 1")
    program("nvcc", "echo nothing of use")
    found = hardware.versions()
    assert (found["nvcc"], found["g++"]) == ("-", "-")


def test_nvcc_is_found_below_cuda_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").write_text("#!/bin/sh\n")
    (tmp_path / "bin/nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert hardware.nvcc() == str(tmp_path / "bin/nvcc")


def test_nvcc_is_found_among_nvidias_python_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of them; a toolkit's goes before."""
    for version in ("cu12", "cu13"):
        tool = tmp_path / f"nvidia/{version}/bin/nvcc"
        tool.parent.mkdir(parents=True)
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert hardware.nvcc() == str(tmp_path / "nvidia/cu13/bin/nvcc")
    monkeypatch.setenv("PATH", str(tmp_path / "nvidia/cu12/bin"))
    assert hardware.nvcc() == str(tmp_path / "nvidia/cu12/bin/nvcc")


def test_cores_are_those_this_process_may_use() -> None:
    one = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{one}}}); from crucible.hardware import cores; print(cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert hardware.cores() == len(os.sched_getaffinity(0))


def test_memory_is_a_plausible_number_of_bytes() -> None:
    assert 2**28 < hardware.memory_bytes() < 2**50
