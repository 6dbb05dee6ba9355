"""Gradients decide where training is asked for, and are told everywhere; a reference may have no backward."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import crucible
from crucible.errors import TaskError
from crucible.report import table
from support import PLAIN, SMALL_TASK, claims, write

IGNORES_THE_SCALE = """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, scale):
        ctx.save_for_backward(hidden)
        return hidden * scale

    @staticmethod
    def backward(ctx, gradient):
        (hidden,) = ctx.saved_tensors
        return {of_hidden}, (gradient * hidden).sum(0)


class ModelNew("""
RETURNS = "return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias"
SCALED = "return Scaled.apply(F.leaky_relu(self.linear(x), self.negative_slope), self.scale) + self.bias"
WHOLE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=1)

def get_inputs():
    return [torch.rand(8, 16)]

def get_init_inputs():
    return []
"""
NO_BACKWARD = """
import torch
import torch.nn as nn


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x * 8) / 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(6))

    def forward(self, x):
        return Rounded.apply(x) * self.scale


def get_inputs():
    return [torch.rand(4, 6)]


def get_init_inputs():
    return []
"""


def own(of_hidden: str) -> str:
    source = PLAIN.read_text()
    assert RETURNS in source
    head = IGNORES_THE_SCALE.format(of_hidden=of_hidden)
    return source.replace("class ModelNew(", head).replace(RETURNS, SCALED).replace(
        "(hidden,) = ctx.saved_tensors", "hidden, *scale = ctx.saved_tensors"
    ).replace("ctx.save_for_backward(hidden)", "ctx.save_for_backward(hidden, scale)")  # fmt: skip


@pytest.fixture(scope="module", params=[False, True])
def run(
    request: pytest.FixtureRequest, judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory
) -> crucible.Run:
    folder = tmp_path_factory.mktemp("gradients")
    files = [
        write(folder / "right.py", own("gradient * scale[0]")),
        write(folder / "ignores_the_scale.py", own("gradient")),
    ]
    return judge_batch(SMALL_TASK, files, training=request.param)


def test_wrong_gradients_decide_where_training_is_asked_for(run: crucible.Run) -> None:
    assert run.verdict("right").evaluation
    wrong = run.verdict("ignores_the_scale")
    assert wrong.forward.words == "ok" and wrong.backward.words == "wrong"
    assert wrong.evaluation == (not run.task.training)
    if run.task.training:
        assert wrong.outcome.words.startswith("wrong gradient: ")
        return
    assert "wrong gradients, which were not asked for: wrong gradient: gradient of" in claims(wrong)
    assert wrong.runtime_ms > 0
    (first, *_) = (f for f in run.explanations["ignores_the_scale"] if "gradient of" in f.claim)
    assert first.remedy
    shown = Console(file=io.StringIO(), width=240)
    table.show(run, shown)
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "passed, wrong gradients (not asked for)" in text
    assert "ok, wrong" in text and "ok, ok" in text


def test_a_reference_without_a_backward_is_judged_by_its_forward(
    judge_batch: Callable[..., crucible.Run], tmp_path: Path
) -> None:
    task = write(tmp_path / "rounded.py", NO_BACKWARD)
    source = NO_BACKWARD.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    files = [write(tmp_path / f"c/{n}.py", source.replace("* 8)", f"* {n[1:]})")) for n in ("n8", "n4")]
    run = judge_batch(task, files)
    assert {v.candidate: v.evaluation for v in run.verdicts} == {"n8": True, "n4": False}
    (finding,) = [f for f in run.findings if "the reference has no backward" in f.claim]
    assert "NotImplementedError" in finding.evidence
    with pytest.raises(TaskError, match="training is asked for, and the reference has no backward"):
        judge_batch(task, files, training=True)


def test_training_of_whole_numbers_is_refused(judge_batch: Callable[..., crucible.Run], tmp_path: Path) -> None:
    """KernelBench level 1 task 51: an honest candidate "raises in timing", for want of what would be pulled back."""
    task = write(tmp_path / "largest.py", WHOLE)
    candidate = write(tmp_path / "c/same.py", WHOLE.partition("def get_inputs")[0].replace("Model(", "ModelNew("))
    assert judge_batch(task, [candidate]).verdict("same").evaluation
    with pytest.raises(TaskError, match=r"the reference has no backward \(its outputs are whole numbers\)"):
        judge_batch(task, [candidate], training=True)
