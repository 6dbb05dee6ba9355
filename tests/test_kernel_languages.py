"""Candidates in languages that a package of its own brings: named as such, and not judged where it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible import hardware
from crucible.candidate import KERNEL_LANGUAGES, Candidate
from crucible.hardware import Device
from crucible.judge.beforehand import is_timed_here, known_without_running, runs_on_emulator
from crucible.judge.verdict.verdict import NotJudged
from crucible.judge.verdict.whose import is_named_in

CPU, GPU = Device("cpu", "CPU", "6"), Device("cuda", "NVIDIA H200", "580")
PACKAGES = {one.name: one.distribution for one in KERNEL_LANGUAGES}


def candidate(imports: str) -> Candidate:
    return Candidate("a", Path("a.py"), f"import torch\n{imports}\n\nclass ModelNew(torch.nn.Module): ...\n")


def install(folder: Path, package: str) -> None:
    """As pip leaves a package's metadata."""
    info = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")


@pytest.mark.parametrize(
    ("imports", "language"),
    [
        ("import tilelang", "tilelang"),
        ("import tilelang.language as T", "tilelang"),
        ("from tilelang import jit", "tilelang"),
        ("import cutlass\nimport cutlass.cute as cute", "cute_dsl"),
        ("from cutlass import Float32, cute", "cute_dsl"),
        ("from cutlass import (\n    Float32,\n    cute,\n)", "cute_dsl"),
        ("from cutlass.cute.runtime import from_dlpack", "cute_dsl"),
        ("import cuda.tile as ct", "cutile"),
        ("from cuda import tile", "cutile"),
        ("import helion\nimport helion.language as hl", "helion"),
        ("import helion\nimport triton", "helion"),
        ("def f():\n    import numpy, tilelang", "tilelang"),
        ("import cutlass", "pytorch"),
        ("from cuda import bindings  # of cuda.tile", "pytorch"),
        ("import tilelang_tools, tileops", "pytorch"),
        ("import triton", "triton"),
    ],
)
def test_the_language_is_the_package_that_is_imported(imports: str, language: str) -> None:
    assert candidate(imports).language == language
    assert candidate(imports).is_for_gpu == (language != "pytorch")


@pytest.mark.parametrize(
    ("imports", "package"),
    [
        ("import tilelang", "tilelang"),
        ("import cutlass.cute", "nvidia-cutlass-dsl"),
        ("import cuda.tile", "cuda-tile"),
        ("import helion", "helion"),
    ],
)
def test_what_is_missing_is_named_and_nobody_is_blamed(
    imports: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = candidate(imports)
    for device in (CPU, GPU):
        outcome = known_without_running(one, device)
        assert isinstance(outcome, NotJudged) and not outcome.failed
        assert outcome.words == f"not judged here: needs {package} (pip install {package})"
        assert not is_timed_here(one, device) and not runs_on_emulator(one, device)
    install(tmp_path, package)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert known_without_running(one, GPU) is None and is_timed_here(one, GPU)  # as any other, by the same worker
    outcome = known_without_running(one, CPU)
    assert isinstance(outcome, NotJudged) and "there is no GPU here" in outcome.words and not runs_on_emulator(one, CPU)
    assert hardware.versions()[package] == "1.2"


def test_verdicts_hang_on_the_packages_versions() -> None:
    assert set(PACKAGES.values()) == set(hardware.KERNEL_PACKAGES)
    assert not set(PACKAGES.values()) & set(hardware.versions())  # none of them is installed here


@pytest.mark.parametrize(
    ("kernel", "text", "own"),
    [
        ("_helion_add", "import helion\n@helion.kernel()\ndef add(x, y): ...", True),
        ("main_kernel", "import tilelang\n@T.prim_func\ndef main(A): ...", True),
        ("kernel_cutlass_add_tensorptrf32gmem_0", "from cutlass import cute\n@cute.kernel\ndef add(a): ...", True),
        (
            "kernel_cutlass_add_all_tensorptrf32gmem_0",
            "from cutlass import cute\n@cute.kernel\ndef add_all(a): ...",
            True,
        ),
        ("_helion_add", "import helion\ndef add_all(x): ...", False),
        ("main_kernel", "def other(A): ...", False),
        ("_helion_add", "import triton\ndef add(x): ...", False),
        ("kernel_cutlass_add_0", "import torch\ndef add(a): ...", False),
    ],
)
def test_kernels_are_known_by_what_their_compilers_call_them(kernel: str, text: str, own: bool) -> None:
    assert is_named_in(kernel, text) is own
