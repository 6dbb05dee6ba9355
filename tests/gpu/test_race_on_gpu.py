"""`--race` on a GPU: what is written, timed beside torch.compile, is right whoever computes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import crucible
from crucible import backend, fusing
from crucible.task import Task

TASK = Path(__file__).parents[2] / "tasks/avgpool3d_convtranspose3d_clamp_softmax_scale"


def test_a_raced_module_computes_what_the_module_does(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(512, 512), nn.GELU()).cuda(), torch.randn(256, 512, device="cuda")
    fused = crucible.fuse(module, x, race=True)
    assert "times as fast as torch.compile forward" in capsys.readouterr().err
    with torch.no_grad():
        torch.testing.assert_close(fused(x), module(x))
    torch.testing.assert_close(fused(x), module(x))


def test_a_file_says_what_was_measured() -> None:
    said: list[str] = []
    task = Task.load(TASK).at(scale="small", training=True, mode="train", small_by_default=False)
    text = fusing.write(task, race=True, say=said.append)
    head = " ".join(fusing.plan_of(text).split())
    assert said[0] in head and "with gradients" in said[0]


@pytest.mark.parametrize("race", [False, True])
def test_a_graph_of_dynamos_runs_on_the_gpu(race: bool) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()  # a Sequential that was compiled for other sizes would have theirs vary
    module, x = (
        nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2)).cuda(),
        torch.randn(4, 3, 32, 32, device="cuda"),
    )
    compiled = torch.compile(module, backend=backend.backend, options={"race": race})
    found, expected = compiled(x), module(x)
    torch.testing.assert_close(found, expected, rtol=5e-3, atol=5e-3)
    wanted = list(module.parameters())
    pairs = zip(*(torch.autograd.grad(y.square().sum(), wanted) for y in (found, expected)), strict=True)
    for own, other in pairs:
        assert (own - other).norm() < 0.02 * other.norm()  # a rounding of TF32 moves the maximum of a window
    assert " fused" in backend.decisions[-1] and ("measured" in backend.decisions[-1]) == race
