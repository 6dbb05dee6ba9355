"""A level's tasks written and judged by the commands that users give: a run that goes on, and what it refuses."""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from crucible.task import Task
from support import NIGHTLY, write

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import judge_level  # noqa: E402
import small_level  # noqa: E402

TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 8)

    def forward(self, x):
        return {made}

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return [8]
"""


def called(monkeypatch: pytest.MonkeyPatch, tasks: Path, folder: Path, *more: str) -> dict[str, Any]:
    """The record of a call."""
    monkeypatch.setattr(sys, "argv", ["judge_level.py", str(tasks), "0", str(folder), "--lanes", "1", *more])
    judge_level.main()
    found: dict[str, Any] = json.loads((folder / "level.json").read_text())
    return found


def test_a_level_is_written_judged_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is right, what raises, what has no backward, and at night what draws random numbers; then only what found no
    room is judged."""
    tasks, folder = tmp_path / "tasks", tmp_path / "run"
    write(tasks / "1_Right.py", TASK.format(made="torch.relu(self.linear(x))"))
    if NIGHTLY:
        write(tasks / "2_Draws.py", TASK.format(made="nn.functional.dropout(self.linear(x), 0.5, self.training)"))
    write(tasks / "3_Raises.py", TASK.format(made="self.missing(x)"))
    write(tasks / "4_Largest.py", TASK.format(made="torch.argmax(self.linear(x), 1)"))
    held = {"device": "other", "tasks": {}}
    write(tmp_path / "other/level.json", json.dumps(held))
    with pytest.raises(SystemExit, match="name another file"):
        called(monkeypatch, tasks, tmp_path / "other")
    write(
        folder / "judged/.3_Raises.told", json.dumps({"candidates": [{"evaluation": True}]})
    )  # of one that was killed
    nothing = judge_level.Need(0.0, 0.0)
    monkeypatch.setattr(judge_level, "need_of", lambda *_: nothing)  # which runs the task, and one raises
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    found = called(monkeypatch, tasks, folder)["tasks"]
    draws = {"2_Draws": True} if NIGHTLY else {}
    others = {**draws, "3_Raises": False, "4_Largest": True}
    assert {name: each["evaluation"] for name, each in found.items()} == {"1_Right": True, **others}
    assert "gradient of linear.weight" in found["1_Right"]["backward"]["tensors"]
    assert "missing" in found["3_Raises"]["words"] and not (folder / "written/3_Raises.py").exists()
    assert not list((tmp_path / "scratch").iterdir())
    no_room = "wrong: [Errno 28] No space left on device"
    write(folder / "judged/1_Right.json", json.dumps({**found["1_Right"], "words": no_room, "evaluation": False}))
    capsys.readouterr()
    assert called(monkeypatch, tasks, folder)["tasks"]["1_Right"]["evaluation"]
    assert capsys.readouterr().out.count(" s: ") == 1


@pytest.mark.parametrize(("layer", "batch", "wide"), [("Conv2d", 4, 12), ("Conv3d", 2, 8)])
def test_a_level_is_given_sizes_for_the_emulator(
    layer: str, batch: int, wide: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what a level names as sizes, however it is assigned, and of nothing else; what is less stays."""
    assigned = "batch_size = 128\nin_channels, out_channels = 3, 64\ndepth = 5\nheight = width = 256\n"
    assigned += (
        "N = 2048 * 2\ninput_shape = (32768,)\nlayer_sizes = [1024] + [16384, 8]\nhidden_layer_sizes = [99, 8]\n"
    )
    others = f"shape = (out_channels, 1, 1)\nstride, scale = 2, 0.5\ndim = 1\nof = torch.nn.{layer}\n"
    file = write(tmp_path / "checkout/level2/7_Sized.py", TASK.format(made="self.linear(x)") + assigned + others)
    monkeypatch.setattr(sys, "argv", ["small_level.py", str(tmp_path / "checkout"), "2", str(tmp_path / "small")])
    small_level.main()
    small = tmp_path / "small/level2/7_Sized.py"
    assert small.read_text().startswith(file.read_text())
    sizes = {"batch_size": batch, "out_channels": 16, "height": wide, "width": wide, "N": 56}
    assert Task.load(small).small == {**sizes, "input_shape": (300,), "hidden_layer_sizes": [72, 8]}


def test_a_level_is_cast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever class its text names, as those with `super(Model, self)` do."""
    text = TASK.format(made="self.linear(x)").replace("super()", "super(Model, self)")
    assert "super(Model, self)" in text
    write(tmp_path / "checkout/level2/7_Cast.py", text)
    command = ["small_level.py", str(tmp_path / "checkout"), "2", str(tmp_path / "small"), "--dtype", "bfloat16"]
    monkeypatch.setattr(sys, "argv", command)
    small_level.main()
    task = runpy.run_path(str(tmp_path / "small/level2/7_Cast.py"))
    (x,) = task["get_inputs"]()
    assert x.dtype == task["Model"](*task["get_init_inputs"]())(x).dtype == torch.bfloat16


def test_what_a_judge_takes_is_known_of_weights_inputs_and_what_is_made(tmp_path: Path) -> None:
    made = 4 * (4 * 8 + 2 * 4 * 8)  # bytes; of the inputs, the product and the relu: a view makes nothing
    weights = 4 * (8 * 8 + 8)
    file = write(tmp_path / "1_Linear.py", TASK.format(made="torch.relu(self.linear(x)).view(-1)"))
    most = judge_level.Need(80.0, 64.0)
    need = judge_level.need_of(file, most)
    held = judge_level.PER_BYTE * made + judge_level.PER_BYTE_OF_WEIGHTS * weights
    assert (need.gpu - judge_level.OWN_GIB) * 2**30 == pytest.approx(held, 1e-3)
    assert need.disk * 2**30 == pytest.approx(on_disk(made, weights))
    raising = write(tmp_path / "2_Raises.py", TASK.format(made="self.missing(x)"))
    assert judge_level.need_of(raising, most).disk * 2**30 == pytest.approx(on_disk(128, weights))
    assert judge_level.need_of(file, judge_level.Need(1.0, 1e-9)) == judge_level.Need(1.0, 1e-9)


def on_disk(made: int, weights: int) -> float:
    return judge_level.DISK_PER_BYTE * made + judge_level.DISK_PER_BYTE_OF_WEIGHTS * weights


def test_judges_share_gpus_and_one_disk() -> None:
    room = judge_level.Room([judge_level.Gpu("0", 80.0, 2), judge_level.Gpu("1", 100.0, 2)], 50.0)
    need = judge_level.Need(60.0, 20.0)
    first, second = room.take(need), room.take(need)
    assert (first.name, second.name) == ("1", "0")
    small = judge_level.Need(10.0, 20.0)
    assert room.take(small) is None  # the disk is full
    assert room.take(judge_level.Need(50.0, 1.0)) is None  # both GPUs are
    third = room.take(judge_level.Need(10.0, 1.0))
    assert third is first
    assert room.take(judge_level.Need(30.0, 1.0)) is None  # one has no lane, the other no room
    room.give_back(second, need)
    assert room.take(small) is second


def test_a_judge_that_failed_on_its_task_has_no_verdict(tmp_path: Path) -> None:
    told = write(tmp_path / ".told", json.dumps({"candidates": [], "findings": []}))
    found = judge_level.verdict_of(told, "JudgeError: the oracle would need 40 GiB, 12 are free for it")
    assert found == {
        "evaluation": False,
        "words": "not judged: JudgeError: the oracle would need 40 GiB, 12 are free for it",
    }
