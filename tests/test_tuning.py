"""Divisions by measurement: what is asked, tried, refused, chosen and kept. Kernels run on the emulator; times are
those of a plain clock of the tests' own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from typer.testing import CliRunner

from crucible import cli, emulator, fusing
from crucible.capture import trace
from crucible.emission.file import emit
from crucible.errors import DeviceError, TuningError
from crucible.gpus import H200, known_gpu
from crucible.plan.planner import fuse as plan_of
from crucible.plan.steps import Plan
from crucible.task import Task
from crucible.tuning.bench import Bench, Calls, host
from crucible.tuning.cache import Cache
from crucible.tuning.search import Search, check_gpu, questions
from crucible.write.convolution import ways
from crucible.write.convolution.questions import Multiplying, Question, Way, WeightGradient
from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.warpgroup.phases import PhaseWalks
from crucible.write.convolution.warpgroup.walks import Walks
from crucible.write.convolution.weight_gradient import Division

TASK = Path(__file__).parents[1] / "tasks/conv3d_leakyrelu_sum_clamp_gelu"
GPU = replace(H200, sms=2)
"""So that blocks take several items each."""
COUNT = 2


class Module(nn.Module):
    """A function of a convolution and an input."""

    def __init__(self, conv: nn.Module, function: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.function = conv, function
        self.scale = nn.Parameter(torch.randn(16, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def _softmax(y: torch.Tensor) -> torch.Tensor:
    return F.softmax(y.flatten(2), 2).reshape(y.shape)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "chain": (
        lambda: Module(nn.Conv3d(8, 16, 3), lambda m, x: (F.leaky_relu(m.conv(x), 0.2) * m.scale).clamp(-1, 1)),
        (3, 8, 4, 5, 10),
    ),
    "pooled": (
        lambda: Module(nn.ConvTranspose3d(8, 16, 3, 2, 1, 1), lambda m, x: F.max_pool3d(m.conv(x) * m.scale, 2)),
        (2, 8, 2, 3, 5),
    ),
    "averaged": (lambda: Module(nn.Conv3d(8, 16, 3), lambda m, x: F.avg_pool3d(m.conv(x), 2)), (2, 8, 4, 5, 10)),
    "clamped": (
        lambda: Module(nn.ConvTranspose3d(8, 16, 3, 2, 1, 1), lambda m, x: _softmax(m.conv(x).clamp(0, 1))),
        (2, 8, 2, 4, 8),
    ),
    "softmax": (lambda: Module(nn.Conv3d(8, 16, 3), lambda m, x: _softmax(m.conv(x))), (2, 8, 4, 5, 10)),
}


@cache
def planned(name: str, tf32: bool = True) -> Plan:
    torch.manual_seed(0)
    make, shape = MODULES[name]
    return plan_of(trace(make(), [torch.randn(shape, requires_grad=True)]), tf32=tf32, gpu=GPU)


@cache
def asked() -> dict[str, tuple[Question, list[Way]]]:
    """Of all modules, and of one whose products keep float32's precision."""
    plans = [*map(planned, MODULES), planned("chain", tf32=False)]
    found = [each for plan in plans for each in questions(plan)]
    return {each.text: (each, ways.ways(each, GPU, COUNT)) for each in found}


NAMES = [(number, question.name) for number, (question, _) in enumerate(asked().values())]


def clock(calls: Calls) -> dict[str, float]:
    """The last way is the fastest."""
    return {name: float(len(calls) - number) for number, name in enumerate(calls)}


def faults() -> list[emulator.Fault]:
    """But for kernels that are still to run."""
    return [each for each in emulator.faults() if each.kind != "never-ran"]


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(torch.device("cpu"), emulator.load_inline, clock, faults)


@pytest.fixture(scope="module")
def built(bench: Bench) -> dict[str, list[Callable[..., Any]]]:
    """All ways of all questions in one extension."""
    emulator.forget()
    return bench.built(GPU, asked())


def nth(number: int) -> tuple[str, Question, list[Way]]:
    key, (question, found) = list(asked().items())[number]
    return key, question, found


# what is asked and tried


def test_the_questions_are_of_every_kind() -> None:
    found = [question for question, _ in asked().values()]
    multiplying = [each for each in found if isinstance(each, Multiplying)]
    assert sum(isinstance(each, WeightGradient) for each in found) == len(MODULES) + 1
    assert any(each.alike for each in multiplying) and not all(each.alike for each in multiplying)
    assert any(each.conv.reductions for each in multiplying) and any(each.conv.exact for each in multiplying)
    assert {each.conv.pool.kind for each in multiplying if each.conv.pool} == {"max", "avg"}
    assert any(each.conv.spread for each in multiplying)
    assert any(result.sums for each in multiplying for result in each.conv.results)


def test_ways_are_of_every_kind_and_told_apart() -> None:
    kinds = {type(way) for _, found in asked().values() for way in found}
    assert kinds == {Tiling, Walks, PhaseWalks, Division}
    for question, found in asked().values():
        assert len({ways.described(way) for way in found}) == len(found) > 0, question.name


def test_the_first_way_is_the_one_that_is_taken_unmeasured() -> None:
    for question, found in asked().values():
        plan = next(p for p in map(planned, MODULES) if question.text in {q.text for q in questions(p)}
                    ) if not getattr(question, "exact", getattr(getattr(question, "conv", None), "exact", False)
                    ) else planned("chain", tf32=False)  # fmt: skip
        text = emit(plan, "module")
        kernel = ways.lowered(question, found[0], GPU, question.name).kernels[-1 if isinstance(question, Multiplying) else 0]
        assert kernel.text in text, question.name
