"""The sweep over shapes: what it covers, a dry run of two of them on the emulator, and what its report says."""

from __future__ import annotations

import copy
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import sweep  # noqa: E402

FLAT, DEEP = BOTH = "2d, 8 channels, k1, s3", "3d, 8 channels, k1, s3"


def run(file: Path, *more: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks/sweep.py"), str(file), *more]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_shapes_are_of_all_that_is_swept() -> None:
    found = {(s.rank, s.channels, s.kernel) for s in sweep.SHAPES}
    assert found == set(itertools.product((2, 3), (1, 3, 8, 16, 24, 32, 64, 128, 256), (1, 3, 5, 7)))
    assert 60 <= len(sweep.SHAPES) <= 80
    for rank in (2, 3):
        of = [s for s in sweep.SHAPES if s.rank == rank]
        assert {(s.channels, s.stride) for s in of} == set(itertools.product(sweep.CHANNELS, (1, 2, 3)))
        assert {(s.kernel, s.stride) for s in of} == set(itertools.product(sweep.KERNELS, (1, 2, 3)))
        assert all(n % 2 for n in sweep.SIZES["full"][rank][1])


def test_shapes_have_names_of_their_own() -> None:
    every = [*sweep.SHAPES, *sweep.FURTHER]
    assert len({shape.name for shape in every}) == len(every)
    assert sweep.Shape(2, 1, 3, 1).name == "2d, 1 channels, k3, s1"
    assert sweep.Shape(2, 16, 3, 1, 16).name == "2d, 16 channels, k3, s1, depthwise"
    assert sweep.Shape(0, 16).name == "linear, 16 features"


@pytest.mark.parametrize("shape", sweep.FURTHER, ids=lambda shape: shape.name)
def test_further_shapes_are_what_their_names_say(shape: sweep.Shape) -> None:
    subject = sweep.loaded(shape, "small")
    assert subject.module(*subject.inputs).shape[:1] == subject.inputs[0].shape[:1]
    layer = subject.module[0]
    assert getattr(layer, "groups", 1) == shape.at("small").groups
    assert type(layer).__name__ == ("Linear" if not shape.rank else f"Conv{shape.rank}d")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shapes."""
    file = tmp_path_factory.mktemp("sweep") / "sweep.json"
    said = run(file, "--scale", "small", "--only", "d, 8 channels, k1", "--rivals", "eager", "--processes", "1")
    assert [line.split(" s3 ")[0] for line in said.splitlines()] == [name.removesuffix(" s3") for name in BOTH]
    return file


def test_a_dry_run_checks_and_times_each_shape(record: Path) -> None:
    shapes = json.loads(record.read_text())["shapes"]
    assert [*shapes] == [*BOTH]
    for found in shapes.values():
        assert found["kept"] == ""
        for covers in ("forward", "forward+backward"):
            assert found[covers]["median_ms"].keys() == {"written", "eager"}
            assert all(ms > 0 for ms in found[covers]["median_ms"].values())


def test_what_is_there_already_is_left_as_it_is(record: Path) -> None:
    left = json.loads(record.read_text())
    left["shapes"] = {name: {"failed": "by hand"} for name in left["shapes"]}
    file = record.with_name("left.json")
    file.write_text(json.dumps(left))
    assert run(file, "--scale", "small", "--only", "d, 8 channels, k1", "--processes", "1") == ""
    assert json.loads(file.read_text()) == left


def test_the_report_says_where_pytorch_convolves(record: Path) -> None:
    data = json.loads(record.read_text())
    data["shapes"][FLAT]["kept"] = why = sweep.kept(sweep.loaded(sweep.Shape(2, 256, 3, 1), "full"))
    assert "matrix product" in why
    said = sweep.markdown(data)
    assert f"| {DEEP} | ours |" in said and f"| {FLAT} | PyTorch |" in said
    assert f"2 of {len(sweep.SHAPES) + len(sweep.FURTHER)} shapes; 0 wrong, 0 failed." in said
    assert "kernels of ours are not known to be faster (a matrix product" in said and f"): {FLAT}." in said


def test_the_report_counts_what_is_wrong_failed_and_slower(record: Path) -> None:
    data: dict[str, Any] = json.loads(record.read_text())
    some = data["shapes"].pop(DEEP)
    for number, ratio in enumerate((0.5, 2.0, 4.0)):
        one = copy.deepcopy(some)
        for covers in ("forward", "forward+backward"):
            one[covers]["over"]["compile"] = {"ratio": ratio, "interval": [ratio, ratio]}
        data["shapes"][f"shape {number}"] = one
    data["shapes"] |= {"off": {"kept": "", "wrong": "output 0: off by 1"}, "gone": {"failed": "it never came back"}}
    said = sweep.markdown(data)
    assert "1 wrong, 1 failed." in said and "| off | WRONG: output 0: off by 1 |" in said
    assert "Ours convolution, forward: 3 shapes, geometric mean 1.59 over torch.compile, 1 slower." in said


def test_a_wrong_module_is_told() -> None:
    subject = sweep.loaded(sweep.Shape(3, 3, 3, 1), "small")
    other = copy.deepcopy(subject.module)
    with torch.no_grad():
        other[0].bias[0] += 0.1
    assert "output 0" in sweep.check(subject, sweep.Subject(other, subject.inputs))
    assert sweep.check(subject, subject) == ""
