"""`crucible fuse`: a task's fused module as a file, judged like anybody's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import crucible
from crucible import fusing
from crucible.cli import app
from crucible.emission.reference import definitions
from crucible.judge.process.limits import Limits
from crucible.task import Task
from support import TASKS, some

SHAPES = {
    "avgpool3d_convtranspose3d_clamp_softmax_scale": "batch_size=2,depth=2,height=6,width=10",
    "conv3d_leakyrelu_sum_clamp_gelu": "batch_size=2,depth=4,height=6,width=7",
    "convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool": "batch_size=2,depth=2,height=3,width=5",
}
"""Small enough for an emulator in seconds, and no multiples of a warp."""
GOLDEN = Path(__file__).parents[1] / "golden" / "written"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The three tasks at small shapes, written by the command."""
    folder = tmp_path_factory.mktemp("written")
    files = {}
    for task in TASKS:
        files[task.name] = folder / task.name / "written.py"
        options = ["-o", str(files[task.name]), "--shape", SHAPES[task.name]]
        done = CliRunner().invoke(app, ["fuse", str(task), *options])
        assert done.exit_code == 0, done.output
        assert f"{task.name}, fused by Crucible for x [" in done.output
    return files


@pytest.mark.parametrize("task", some(TASKS[::-1], 3), ids=lambda task: task.name)  # always the one that is trained
def test_the_judge_passes_what_is_written_with_gradients(task: Path, written: dict[str, Path]) -> None:
    options = {
        "shapes": [SHAPES[task.name]],
        "baselines": "none",
        "limits": Limits(race_s=0.05, shrink_s=0, stress_s=0),
    }
    run = crucible.judge(task, [written[task.name]], device="emulator", training=True, **options)
    assert run.verdict("written").evaluation, run.verdict("written").outcome.words


def test_the_judge_passes_what_keeps_the_precision_of_float32(tmp_path: Path) -> None:
    """Of the task whose plan is all convolution: three products each take their time on the emulator."""
    (task,) = (task for task in TASKS if task.name.startswith("conv3d"))
    file, shape = tmp_path / "exact.py", "batch_size=1,depth=3,height=4,width=5"
    done = CliRunner().invoke(app, ["fuse", str(task), "-o", str(file), "--shape", shape, "--contract", "fp32"])
    assert done.exit_code == 0, done.output
    assert "mma_tf32(part, a_high, b_low)" in file.read_text()
    options = {
        "shapes": [shape],
        "baselines": "none",
        "limits": Limits(race_s=0.05, shrink_s=0, stress_s=0),
        "contract": "fp32",
    }
    run = crucible.judge(task, [file], device="emulator", training=True, **options)
    assert run.verdict("exact").evaluation, run.verdict("exact").outcome.words


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_written_files_are_golden_text(task: Path, written: dict[str, Path]) -> None:
    text, golden = written[task.name].read_text(), GOLDEN / f"{task.name}.py"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), "run with UPDATE_GOLDEN=1 and review the difference"


MODES = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        return torch.relu(self.norm(x)) * torch.linspace(1, 2, 5, device=x.device)

def get_inputs():
    return [torch.rand(3, 5)]

def get_init_inputs():
    return []
"""


def test_in_the_other_mode_a_written_module_is_the_reference(tmp_path: Path) -> None:
    """Where that makes a difference; tensors that forward makes are made beside its input."""
    (tmp_path / "modes.py").write_text(MODES)
    text = fusing.write(Task.load(tmp_path / "modes.py"))
    names: dict[str, Any] = {"__name__": "written_modes"}
    exec(text.replace("torch.utils.cpp_extension", "crucible.emulator"), names)
    x = torch.rand(3, 5)
    for training in (True, False):
        written, reference = (names[name]().train(training) for name in ("ModelNew", "Model"))
        torch.testing.assert_close(written(x), reference(x))
        torch.testing.assert_close(written.norm.running_mean, reference.norm.running_mean)


def test_where_the_mode_makes_no_difference_it_is_not_asked_for(written: dict[str, Path]) -> None:
    assert all("self.training" not in file.read_text() for file in written.values())


def test_the_same_task_gives_the_same_text() -> None:
    task = Task.load(TASKS[1]).at(scale="small", training=True, mode="train", small_by_default=True)
    assert fusing.write(task) == fusing.write(task)


def test_a_task_that_cannot_be_captured_is_misuse(tmp_path: Path) -> None:
    task = tmp_path / "decides.py"
    task.write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x * 2 if x.sum() > 0 else x\n\ndef get_inputs():\n    return [torch.rand(3)]\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    done = CliRunner().invoke(app, ["fuse", str(task), "-o", str(tmp_path / "out.py")])
    assert done.exit_code != 0
    assert "decides.py:5" in str(done.exception)
    assert not (tmp_path / "out.py").exists()


REFERENCE = '''
"""A reference."""
from __future__ import annotations

import torch
from torch import nn

SIZE = 4
WIDE = SIZE * 2
unused = 7
batch = 3


def helper(batch):
    return batch + WIDE


@torch.no_grad
class Other: pass


class Model(nn.Module):
    def __init__(self, unused):
        super().__init__()
        self.size = helper(unused)


def get_inputs():
    return [torch.rand(batch)]
'''


def test_of_the_reference_only_what_the_class_needs_is_kept() -> None:
    kept = definitions(REFERENCE)
    assert [line for line in kept.splitlines() if line and not line.startswith(" ")] == [
        "import torch",
        "from torch import nn",
        "SIZE = 4",
        "WIDE = SIZE * 2",
        "def helper(batch):",
        "class Model(nn.Module):",
    ]
