"""Divisions measured on a GPU: every one right, the fastest taken, and known from then on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import crucible
from crucible import fusing
from crucible.capture import trace
from crucible.errors import TuningError
from crucible.gpus import closest_gpu
from crucible.kinds.convolution import ways
from crucible.plan.planner import fuse as plan_of
from crucible.task import Task
from crucible.tuning.bench import gpu_bench
from crucible.tuning.search import COUNT, questions

TASKS = sorted(path.parent for path in (Path(__file__).parents[2] / "tasks").glob("*/reference.py"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CRUCIBLE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_is_tuned_once(task: Path, home: Path) -> None:
    """At small sizes: all divisions of all its kernels are right, and a second call builds nothing."""
    loaded = Task.load(task).at(scale="small", training=False, mode="train", small_by_default=False)
    gpu, said = closest_gpu(torch.cuda.get_device_name()), list[str]()
    text = fusing.write(loaded, gpu=gpu, tune=True, say=said.append)
    assert said[0].startswith("building") and "divisions of these kernels were measured" in fusing.plan_of(text)
    for file in (home / "tuned").glob("*.json"):
        kept = json.loads(file.read_text())
        assert kept["chosen"] == min(kept["tried"], key=lambda each: each["ms"])["way"]
        assert all(0 < each["ms"] < 100 for each in kept["tried"])
    said.clear()
    assert fusing.write(loaded, gpu=gpu, tune=True, say=said.append) == text and not said


def test_a_tuned_module_computes_what_pytorch_does() -> None:
    """Its chain has no kink: behind a ReLU what rounding operands to TF32 flips is 1.5 % of the gradients."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv3d(16, 32, 3, padding=1), nn.Tanh()).cuda()
    x = torch.randn(4, 16, 9, 21, 22, device="cuda", requires_grad=True)
    tuned, exact = crucible.fuse(module, x, tune=True), nn.Sequential(nn.Conv3d(16, 32, 3, padding=1), nn.Tanh())
    exact = exact.cuda().double()
    exact.load_state_dict({name: value.double() for name, value in module.state_dict().items()})
    y, right = tuned(x), exact(x.double())
    cotangent = torch.randn_like(y)
    found = [y, *torch.autograd.grad(y, [x, *tuned.parameters()], cotangent)]
    wanted = [right, *torch.autograd.grad(right, [x, *exact.parameters()], cotangent.double())]
    for one, other in zip(found, wanted, strict=True):
        assert ((one.double() - other).norm() / other.norm()).item() < 2e-3


def test_a_wrong_division_is_refused_by_name() -> None:
    """One value of 200,000, in the last of all ways."""
    module = nn.Conv3d(8, 64, 3).cuda()
    gpu = closest_gpu(torch.cuda.get_device_name())
    x = torch.randn(4, 8, 6, 16, 18, device="cuda")
    question = questions(plan_of(trace(module, [x]), gpu=gpu))[0]
    found = ways.ways(question, gpu, COUNT)
    bench = gpu_bench()
    *right, last = bench.built(gpu, {"": (question, found)})[""]

    def wrong(*given: torch.Tensor) -> list[torch.Tensor]:
        made = [each.clone() for each in last(*given)]
        made[0][77] += 0.01
        return made

    assert len(bench.measured(question, found, [*right, last], gpu)) == len(found) > COUNT
    with pytest.raises(TuningError) as refused:
        bench.measured(question, found, [*right, wrong], gpu)
    assert ways.described(found[-1]) in str(refused.value) and "1 of" in str(refused.value)
