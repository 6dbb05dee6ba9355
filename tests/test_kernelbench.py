"""The benchmark over a KernelBench checkout: a run that goes on, and what its report counts."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import gpu_turns  # noqa: E402
import kernelbench  # noqa: E402
from kernelbench_report import report, summary, table  # noqa: E402

TASK = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(2, channels, 3)

    def forward(self, x):
        return torch.relu(self.conv(x)) * 2

def get_inputs():
    return [torch.rand(2, 2, 6, 7)]

def get_init_inputs():
    return [3]
"""
REFUSED = TASK.replace("torch.relu(self.conv(x))", "self.conv(x) * self.conv(x).sum().item()")


def test_a_run_records_each_task_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    level = tmp_path / "checkout/KernelBench/level2"
    level.mkdir(parents=True)
    (level / "1_conv.py").write_text(TASK)
    (level / "2_refused.py").write_text(REFUSED)
    command = ["kernelbench.py", str(tmp_path / "checkout"), "2", str(tmp_path / "found"), "--baselines", "eager"]
    command += ["--race-seconds", "0.2"]

    def called(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", [*command, *more])
        kernelbench.main()
        return capfd.readouterr().out

    assert "tf32: 2 tasks, 1 written, 1 right" in called()
    found = json.loads((tmp_path / "found/tf32/1_conv.json").read_text())
    assert found["right"] and found["against"] == ["float32", "float64"] and not found["rewritten"]
    assert (
        0 < found["written"]["float64_outputs_error"] < 1e-3 and 0 < found["written"]["float64_gradients_error"] < 1e-3
    )
    rounded = found["rounded"]["float64_outputs_error"]
    assert 1e-5 < rounded < 1e-3 and found["eager"]["float64_outputs_error"] < rounded / 10  # a CPU rounds nothing
    assert found["rounded"]["float64_gradients_error"] > 10 * found["eager"]["float64_gradients_error"]
    assert set(found["forward+backward"]["median_ms"]) == {"written", "eager"}
    refused = json.loads((tmp_path / "found/tf32/2_refused.json").read_text())["refused"]
    assert "takes a number out of a tensor" in refused
    again = called()
    assert "left for the next call: none" in again and "conv build" not in again and "conv measure" not in again
    made = {file.name for file in (tmp_path / "found").glob("*.*")}
    assert made == {"record.json", "table.md", "plot.svg", "curve.svg"}
    with pytest.raises(SystemExit, match="name another folder"):
        called("--race-seconds", "3")


def test_tasks_come_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    """What is most uncertain is measured first."""
    level = tmp_path / "level2"
    level.mkdir()
    for name in ("1_a", "2_b", "10_c"):
        (level / f"{name}.py").write_text(TASK)

    def chosen(only: str) -> list[str]:
        args = argparse.Namespace(checkout=tmp_path, level=2, only=only)
        return [file.stem for file in kernelbench.task_files(args)]

    assert chosen("") == ["1_a", "2_b", "10_c"]
    assert chosen("10,1") == ["10_c", "1_a"]
    with pytest.raises(SystemExit, match="no such tasks"):
        chosen("10,3")


WORKER = """
import sys, time
sys.path.insert(0, sys.argv[1])
import gpu_turns
from pathlib import Path
gpu_turns.PLACE = Path(sys.argv[2])
with gpu_turns.beside_others():
    for turn in range(100_000):
        Path(sys.argv[2], "turn").write_text(str(turn))
        time.sleep(0.005)
"""


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """Whether another process goes on, which works with the GPU beside others."""
    monkeypatch.setattr(gpu_turns, "PLACE", tmp_path)
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(ROOT / "benchmarks"), str(tmp_path)])
    file = tmp_path / "turn"

    def turn() -> str:
        return file.read_text() if file.exists() else ""

    def go_on() -> bool:
        before = turn()
        end = time.monotonic() + 60  # a busy CI took over 10 s to start it
        while (now := turn()) in ("", before) and time.monotonic() < end:  # empty while it is being written
            time.sleep(0.01)
        return now not in ("", before)

    assert go_on()
    yield go_on
    worker.kill()
    worker.wait()


def test_who_measures_has_the_gpu_alone_and_waits_for_no_worker(
    turns: Callable[[], bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, entered = tmp_path / "turn", threading.Event()

    def other() -> None:
        with gpu_turns.alone():
            entered.set()

    with gpu_turns.alone():
        before = file.read_text()
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.3)
        assert file.read_text() == before
    assert entered.wait(10)
    thread.join(10)
    assert turns()


def test_whom_a_killed_process_has_stopped_goes_on(turns: Callable[[], bool], tmp_path: Path) -> None:
    code = "import os, signal, gpu_turns; from pathlib import Path; gpu_turns.PLACE = Path(os.environ['HERE'])\n"
    code += "with gpu_turns.alone(): os.kill(os.getpid(), signal.SIGKILL)"
    place = {"PYTHONPATH": str(ROOT / "benchmarks"), "HERE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **place}, check=False)
    file = tmp_path / "turn"
    before = file.read_text()
    time.sleep(0.3)
    assert file.read_text() == before
    gpu_turns.resume("")
    assert turns()


def test_what_is_noise_is_held_to_the_benchmarks_rule_alone() -> None:
    """The mean of what a norm has made has no digits, in float32 as in float64."""
    outputs = {"float32": {"outputs": [torch.full((4,), 1e-9)]}, "float64": {"outputs": [torch.full((4,), 1e-17)]}}
    assert kernelbench.noise(outputs) == ["outputs"]
    assert kernelbench.noise({each: {"outputs": [torch.ones(4)]} for each in outputs}) == []
    written = {
        "float64_outputs_error": 1e8,
        "float64_gradients_error": 1e-4,
        "allclose_0.0001": True,
        "gradients_missing": 0,
    }
    found = {"written": written, "eager": {"float64_outputs_error": 1e7}, "noise": ["outputs"]}
    assert kernelbench.is_right(found, 2e-3)
    assert not kernelbench.is_right({**found, "noise": []}, 2e-3)
    assert not kernelbench.is_right({**found, "written": {**written, "allclose_0.0001": False}}, 2e-3)
    assert not kernelbench.is_right({**found, "written": {**written, "float64_gradients_error": 0.1}}, 2e-3)
    assert not kernelbench.is_right({**found, "written": {"failed": "out of memory"}}, 2e-3)


class Averaged(torch.nn.Module):
    """A bias before a batch norm that is trained: its gradient is the roundings of 0, and None once it is detached."""

    def __init__(self, detach: bool) -> None:
        super().__init__()
        self.bias, self.norm, self.detach = torch.nn.Parameter(torch.zeros(8)), torch.nn.BatchNorm1d(8), detach

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(x + (self.bias.detach() if self.detach else self.bias))
        return result


def test_a_gradient_that_is_zero_and_lacks_is_wrong() -> None:
    x = torch.randn(64, 8, requires_grad=True)
    column = kernelbench.COLUMNS["tf32"]
    for detach in (False, True):
        module, written = Averaged(False), Averaged(detach)
        buffers = {name: each.clone() for name, each in module.named_buffers()}
        found = kernelbench.Truth(module, column, [x], buffers).errors(
            {"written": kernelbench.Subject(written, column.written, [x], buffers)}
        )
        assert found["written"]["float32_gradients_error"] < 1e-3
        assert found["written"]["gradients_missing"] == detach
        assert found["right"] is not detach


def test_gradients_lack_where_there_are_none_at_all() -> None:
    some = torch.ones(2)
    assert kernelbench.missing({"gradients": [some, None]}, {"gradients": [some, some]}) == 1
    assert kernelbench.missing({"gradients": [some, some]}, {"gradients": [some, None]}) == 0
    assert kernelbench.missing({}, {"gradients": [some, None]}) == 1
    assert kernelbench.missing({}, {}) == 0


@pytest.mark.parametrize("column", ["tf32", "bf16"])
@pytest.mark.parametrize(
    ("module", "against"),
    [
        (torch.nn.Dropout(), ["float32", "float64"]),
        (torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Dropout2d(0.3)), ["float32", "float64"]),
        (torch.nn.Tanh(), ["float32", "float64"]),
        (torch.nn.RReLU(), ["float32"]),  # draws within its kernel
    ],
    ids=["dropout", "several", "none", "unknown"],
)
def test_what_draws_is_held_against_float64_that_draws_the_same(
    module: torch.nn.Module, against: list[str], column: str
) -> None:
    """By itself it draws other numbers there, of which nothing can be as near as eager is."""
    of = kernelbench.COLUMNS[column]
    x = torch.randn(64, 8, 3, 3, dtype=of.dtype, requires_grad=True)

    def found(written: torch.nn.Module) -> Any:
        truth = kernelbench.Truth(module, of, [x], {})
        return truth.errors({"written": kernelbench.Subject(written, of.written, [x], {})})

    assert found(module)["against"] == against
    if against[-1] == "float64":
        assert found(module)["right"] and found(module)["noise"] == []
        assert not found(torch.nn.Sequential(module, torch.nn.Softshrink(0.2)))["right"]
        assert found(module)["written"]["float64_outputs_error"] < 0.01


def test_what_is_nothing_but_roundings_is_so_behind_draws_too() -> None:
    """A batch norm of equal numbers, whose mean eager rounds."""

    class Level(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(1, affine=False, track_running_stats=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(torch.nn.functional.dropout(x.clamp(max=0.7), 0.2).amax(1, keepdim=True))

    class Off(Level):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1e-6

    torch.manual_seed(0)
    x, column = (torch.randn(8, 64) + 2).requires_grad_(), kernelbench.COLUMNS["tf32"]
    found = kernelbench.Truth(Level(), column, [x], {}).errors(
        {"written": kernelbench.Subject(Off(), column.written, [x], {})}
    )
    assert found["right"] and "outputs" in found["noise"]


class Bent(torch.nn.Module):
    """A ReLU behind a product, of whose values those up to `near` of 0 turn over; or a column is `off` by a part."""

    def __init__(self, product: torch.nn.Linear, near: float = 0.0, off: float = 0.0) -> None:
        super().__init__()
        self.product, self.near, self.off = product, near, off

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.product(x)
        y = torch.where(y.abs() < self.near, y - 2 * y.detach(), y)
        return torch.relu(torch.where(torch.arange(y.shape[1]) == 3, y * (1 + self.off), y))


@pytest.mark.parametrize("wrong", [False, True])
def test_gradients_are_held_again_off_kinks(wrong: bool) -> None:
    """A value 1e-6 from 0 may turn over, and moves a gradient by all that is pulled back through it."""
    torch.manual_seed(0)
    product, x, column = torch.nn.Linear(64, 1024), torch.randn(256, 64, requires_grad=True), kernelbench.COLUMNS
    bent = Bent(product, off=0.01) if wrong else Bent(product, near=1e-5)
    truth = kernelbench.Truth(Bent(product), column["default"], [x], {})
    found = truth.errors({"written": kernelbench.Subject(bent, column["default"].written, [x], {})})
    assert found["right"] is not wrong
    assert found["near_kinks"] > 0


@pytest.mark.parametrize("near", [3e-4, 3e-2])
def test_kinks_are_as_near_as_what_operands_may_be_rounded_by(near: float) -> None:
    """Of a few values one may turn over that rounding to nearest leaves where it is; not one that is far off."""
    torch.manual_seed(0)
    product, x, column = torch.nn.Linear(64, 64), torch.randn(16, 64), kernelbench.COLUMNS["tf32"]
    with torch.no_grad():
        product.bias[5] -= product(x)[2, 5] - 0.9 * near
    truth = kernelbench.Truth(Bent(product), column, [x.requires_grad_()], {})
    found = truth.errors({"written": kernelbench.Subject(Bent(product, near=near), column.written, [x], {})})
    assert found["rounded"]["float64_gradients_error"] < 1e-3
    assert found["right"] is (near < 1e-2)


def test_roundings_that_only_ours_makes_are_held_to_what_they_cost() -> None:
    """Behind a kink (a maximum, a ReLU) a rounding of 1e-4 moves gradients of single elements, and eager's convolution
    may have been exact."""
    exact = {"float64_outputs_error": 1e-7, "float64_gradients_error": 4e-4}
    rounded = {"float64_outputs_error": 1e-4, "float64_gradients_error": 2.5e-2}
    written = {
        "float64_outputs_error": 1.1e-4,
        "float64_gradients_error": 2.9e-2,
        "allclose_0.0001": False,
        "gradients_missing": 0,
    }
    found = {"written": written, "eager": exact, "rounded": rounded, "noise": []}
    assert kernelbench.is_right(found, 2e-3)
    assert not kernelbench.is_right({**found, "written": {**written, "float64_gradients_error": 6e-2}}, 2e-3)
    assert not kernelbench.is_right({**found, "rounded": exact}, 2e-3)


def measured(ratio: float, width: float = 0.01, **more: Any) -> dict[str, Any]:
    each = {"ratio": ratio, "interval": [ratio - width, ratio + width]}
    worse = {"ratio": ratio * 2, "interval": [ratio, ratio * 3]}
    medians = {"written": 1.0, "eager": ratio * 2, "compile": ratio * 2, "max-autotune": ratio}
    over = {"eager": worse, "compile": worse, "max-autotune": each}
    part = {"median_ms": medians, "over": over, "doubts": [], "failed": {}}
    close = {"allclose_0.0001": True}
    found = {"right": True, "rewritten": False, "eager": close, "written": close}
    return {**found, "forward": part, "forward+backward": part, **more}


TASKS = {
    "1_a": measured(2.0),
    "2_b": measured(8.0, rewritten=True),
    "3_c": measured(1.0),
    "4_d": measured(0.5, written={"allclose_0.0001": False}),
    "5_wrong": measured(9.0, right=False),
    "6_refused": {"refused": "it draws random numbers"},
    "7_no_backward": {k: v for k, v in measured(4.0).items() if k != "forward+backward"},
}


def test_shares_tell_ties_and_rewritten_tasks_apart_and_leave_out_what_is_wrong() -> None:
    found = summary(TASKS)
    assert (found["tasks"], found["written"], found["right"], found["rewritten"]) == (7, 6, 5, 1)
    best = found["all"]["forward"]["best"]
    assert (best["faster"], best["ties"], best["slower"], best["fast_1"], best["fast_2"]) == (3, 1, 1, 4, 3)
    assert best["geometric_mean"] == pytest.approx(32 ** (1 / 5)) and best["least"] == 0.5
    assert found["all"]["forward"]["compile"]["least"] == 1.0  # the better of the compiled is max-autotune here
    assert found["without rewritten"]["forward"]["best"]["geometric_mean"] == pytest.approx(4 ** (1 / 4))
    assert found["all"]["forward+backward"]["best"]["tasks"] == 4
    assert found["allclose"] == {"eager": 6, "written": 5, "eager alone": ["4_d"]}


def test_the_table_and_the_plot_have_each_task(tmp_path: Path) -> None:
    place = tmp_path / "tf32"
    place.mkdir()
    (place / "header.json").write_text(json.dumps({"device": "NVIDIA H200"}))
    for name, found in TASKS.items():
        (place / f"{name}.json").write_text(json.dumps(found))
    said = report(tmp_path, 2)
    assert "look at 5_wrong: wrong" in said and "look at 6_refused: refused: it draws" in said
    rows = [line for line in table("tf32", TASKS).splitlines() if re.match(r"\| \d", line)]
    assert len(rows) == len(TASKS) and "2 [1.99, 2.01]" in rows[0] and rows[1].endswith("| rewritten |")
    for name in ("plot.svg", "curve.svg"):
        drawn = ElementTree.fromstring((tmp_path / name).read_text())
        circles = [each for each in drawn.iter() if each.tag.endswith("circle")]
        assert len(circles) == 2 + 2 * 4 + 1  # the legend's, both ways of the right ones, one way of one
