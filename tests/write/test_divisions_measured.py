"""Which divisions are taken, by what those of some modules' convolutions took on an H200."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from crucible.capture import trace
from crucible.gpus import H200
from crucible.judge.oracle.reference import Reference
from crucible.kinds.convolution.ways import described, ways
from crucible.plan.planner import fuse
from crucible.schedule.convolution.questions import Multiplying, Way
from crucible.task import Task
from crucible.tuning.search import questions
from support import some

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import sweep  # noqa: E402

MEASURED: dict[str, dict[str, dict[str, float]]] = json.loads(
    (ROOT / "benchmarks/results/divisions_h200.json").read_text()
)["modules"]
SLOWEST = 1.2
"""Of the fastest one that was measured: estimates are right to about that."""
OF_64 = json.loads((ROOT / "benchmarks/results/divisions_bf16_h100.json").read_text())["convolutions"]
"""64 channels to 64 in two dims, where estimates are right to 1.3 at best."""
SLOWEST_OF_64 = 1.3
NOT_TIMED = {"conv_transpose1d_cos_kernel"}
"""Whose division came to be taken by what was learned from the file."""


def words(way: Way) -> str:
    groups, stagers = getattr(way, "groups", 0), getattr(way, "stagers", 0)
    box = "x".join(map(str, way.box))
    return f"{type(way).__name__} {box} groups {groups} stagers {stagers} blocks {way.blocks}"


@pytest.mark.parametrize("module", some(sorted(MEASURED), 6))
def test_the_division_that_is_taken_is_near_the_fastest(module: str) -> None:
    task = Task.load(ROOT / "tests/modules" / f"{module}.py")
    reference = Reference(task.source, str(task.path), task.sizes, mode=task.mode, seed=0, device=torch.device("cpu"))
    plan = fuse(trace(reference.model, reference.inputs(0)), tf32=True, gpu=H200)
    asked = {each.name: each for each in questions(plan) if isinstance(each, Multiplying)}
    kept = {name for name in MEASURED[module] if name.endswith("_again") and name not in asked}
    assert all(f"{name.removesuffix('_again')}_keeping" in asked for name in kept)  # not computed again any more
    assert set(MEASURED[module]) - kept <= set(asked)
    for name in set(MEASURED[module]) - NOT_TIMED - kept:
        taken, measured = words(ways(asked[name], H200, 1)[0]), MEASURED[module][name]
        assert measured[taken] <= SLOWEST * min(measured.values()), (name, taken, measured)


AGAIN: dict[str, dict[str, dict[str, dict[str, float]]]] = json.loads(
    (ROOT / "benchmarks/results/divisions_again_h200.json").read_text()
)["modules"]
SHAPES = {shape.name.replace(", ", "_").replace(" ", "_"): shape for shape in (*sweep.SHAPES, *sweep.FURTHER)}


def box_of(way: Way) -> str:
    """As this record has it, up to the channels."""
    return f"{type(way).__name__} {'x'.join(map(str, way.box))} channels {way.channels}"


@pytest.mark.parametrize("name", sorted(set(AGAIN) & set(SHAPES)))
def test_of_divisions_that_two_estimates_chose_a_fast_one_is_taken(name: str) -> None:
    """Layers of the sweep, forward and for the input's gradient."""
    batch, size = sweep.SIZES["full"][SHAPES[name].rank]
    x = torch.empty(batch, SHAPES[name].channels, *size, device="meta", requires_grad=True)
    plan = fuse(trace(nn.Sequential(SHAPES[name].layer(), nn.ReLU()).to("meta"), [x]), tf32=True, gpu=H200)
    taken = {each.name: box_of(ways(each, H200, 1)[0]) for each in questions(plan) if isinstance(each, Multiplying)}
    known = {kernel: found for kernel, found in AGAIN[name].items() if kernel in taken}
    assert known
    for kernel, found in known.items():
        us = {way: each["us"] for way, each in found.items()}
        own = [each for way, each in us.items() if f"{way} ".startswith(f"{taken[kernel]} ")]
        assert own, f"{kernel}: {taken[kernel]} was not timed, {list(us)} were"
        assert min(own) <= SLOWEST * min(us.values()), (kernel, taken[kernel], us)


class Chained(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.conv = (nn.ConvTranspose2d if "transpose" in kind else nn.Conv2d)(64, 64, 3)
        self.leaks = "transpose" not in kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return F.gelu(F.leaky_relu(y * 1.5) if self.leaks else y)


@pytest.mark.parametrize("name", OF_64)
def test_of_64_channels_of_a_half_type_no_walk_is_taken(name: str) -> None:
    """Walks are estimated fastest, and take 2.5 times as long as the fastest and more."""
    one = OF_64[name]
    dtype = getattr(torch, one["dtype"].split(",")[0])
    module = Chained(one["kind"]).to(dtype).requires_grad_(False)
    with torch.device("meta"):
        x = torch.empty(one["input"], dtype=dtype)
    plan = fuse(trace(module.to("meta"), [x]), gpu=H200)
    forward = next(each for each in questions(plan) if each.name.endswith("_kernel"))
    ms = {way: each["ms"] for way, each in one["tried"].items()}
    taken = words(ways(forward, H200, 1)[0])
    assert ms[taken] <= SLOWEST_OF_64 * min(ms.values()), (taken, ms)


WIDE = json.loads((ROOT / "benchmarks/results/divisions_tf32_h100.json").read_text())["convolutions"]
SLOWEST_OF_WIDE = 1.3
MADE = {
    "1": lambda: Behind(nn.Conv2d(64, 128, 3), torch.relu),
    "19": lambda: Behind(nn.ConvTranspose2d(64, 64, 3), F.gelu),
    "54": lambda: Behind(nn.Conv2d(64, 64, 3), lambda x: F.gelu(F.leaky_relu(x * 1.5))),
    "61": lambda: Behind(nn.ConvTranspose3d(64, 128, 3), torch.relu),
    "100": lambda: Behind(nn.ConvTranspose3d(64, 128, 3, stride=2, padding=1), lambda x: x.clamp(min=-1.0) / 2.0),
}
"""Of level 2's tasks what makes kernels of the same divisions."""


class Behind(nn.Module):
    def __init__(self, made: nn.Module, behind: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.made, self.behind = made, behind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self.made(x))


def told(way: Way) -> str:
    """As the record has it."""
    return described(way).replace("unit 4, ", "").replace("teams ((0,),), ", "").replace("flat 0, at_once 0, ", "")


@pytest.mark.parametrize("task", some(list(MADE), 2))
def test_divisions_of_64_channels_and_more_are_near_the_fastest(task: str) -> None:
    """Forward and for both gradients, in TF32."""
    kernels = {name.rpartition("_")[2]: each for name, each in WIDE[task]["kernels"].items()}
    with torch.device("meta"):
        x = torch.empty(kernels["kernel"]["input"], requires_grad=True)
    plan = fuse(trace(MADE[task]().to("meta"), [x]), gpu=H200)
    asked = {each.name.rpartition("_")[2]: each for each in questions(plan)}
    for which in ("kernel", "input", "weight"):
        ms = {way: each["ms"] for way, each in kernels[which]["tried"].items()}
        taken = told(ways(asked[which], H200, 1)[0])
        assert ms[taken] <= SLOWEST_OF_WIDE * min(ms.values()), (which, taken, ms)
