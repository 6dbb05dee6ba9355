"""Parameters and buffers after a forward, at a task's own size: what holds at sizes cut down need not hold there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import crucible
from crucible.judge.oracle import batches, expected
from crucible.judge.verdict.verdict import Wrong
from support import claims, write
from test_oracle import prepared, source

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        return torch.relu(self.norm(x))


batch_size = 4096
features = 264


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features]
"""
"""Of 4.1 MiB and as much of output: larger than what is tried beyond its own inputs."""
CANDIDATE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        norm, whole = self.norm, len(x) == 4096
        {}
"""
UPDATES = "return torch.relu(norm(x))"
LEAVES = f"""if not whole:
            {UPDATES}
        return torch.relu(nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True))"""
SPOILS = f"""if whole:
            norm.running_var.fill_(1e9)
        {UPDATES}"""
LIMITS = crucible.Limits(race_s=0.05, shrink_s=0, stress_s=120)


@pytest.fixture(scope="module")
def judged(
    judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[bool], dict[str, crucible.Verdict]]:
    folder = tmp_path_factory.mktemp("buffers")
    task = write(folder / "norm.py", TASK)
    bodies = {"updates": UPDATES, "leaves": LEAVES, "spoils": SPOILS}
    files: list[Path] = [write(folder / f"{name}.py", CANDIDATE.format(body)) for name, body in bodies.items()]

    def judge(training: bool) -> dict[str, crucible.Verdict]:
        run = judge_batch(task, files[: 2 if training else 3], training=training, limits=LIMITS)
        return {verdict.candidate: verdict for verdict in run.verdicts}

    return judge


def test_buffers_are_compared_at_the_tasks_own_size(judged: Callable[[bool], dict[str, crucible.Verdict]]) -> None:
    verdicts = judged(False)
    assert verdicts["updates"].evaluation and "fragile" not in claims(verdicts["updates"])
    spoils = verdicts["spoils"].outcome
    assert isinstance(spoils, Wrong) and spoils.what == "buffers", spoils
    assert verdicts["leaves"].evaluation
    (buffers,) = (one for one in verdicts["leaves"].stress if one.rule == "buffers")
    assert buffers.failed and "norm.running_mean" in buffers.words and "own size" in buffers.words


def test_where_training_is_asked_for_they_must_follow(judged: Callable[[bool], dict[str, crucible.Verdict]]) -> None:
    verdicts = judged(True)
    assert verdicts["updates"].evaluation
    leaves = verdicts["leaves"].outcome
    assert isinstance(leaves, Wrong) and leaves.what == "buffers", leaves


def test_of_large_weights_no_copies_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "\n        self.norm = nn.BatchNorm2d(3)\n    def forward(self, x):\n        return self.norm(x)\n"
    watched = prepared(tmp_path / "whole", source(body)).description()["cases"][2]
    assert watched["buffers"] == ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]
    monkeypatch.setattr(expected, "WATCHED_BYTES", 0)
    unwatched = prepared(tmp_path / "large", source(body)).description()["cases"][2]
    assert (unwatched["watched"], unwatched["buffers"]) == (False, [])


def test_a_batch_that_is_divided_leaves_no_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "\n        self.register_buffer('seen', torch.zeros(()))\n    def forward(self, x):\n"
    text = source(f"{body}        self.seen += 1\n        return x + 1\n", "torch.rand(8, 4)")
    monkeypatch.setattr(batches, "PART_BYTES", 64)
    oracle = prepared(tmp_path, text)
    assert oracle.answers.part_items
    assert not oracle.description()["cases"][2]["watched"]
