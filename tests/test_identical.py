"""Code that is the same is told to take the same time, and code that does it twice is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import crucible
from crucible.judge.verdict.evidence import Measured
from support import write

MODULE = """
import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        for _ in range({times}):
            y = torch.tanh(self.linear(x)).cumsum(1)
        return y
"""
TASK = (
    MODULE.format(name="Model", times=1)
    + """

batch_size = 256
features = 512


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features]
"""
)
"""2.5 ms of one processor."""
TRIES = 4
"""An interval of 95 % leaves 1 out in one of twenty: 2 of 24 times here, two cores with 15 to 20 processes; on a busier
machine more, as times of neighbouring turns are then alike (three of eight, one of them to each side). What is told
apart by more than chance is told apart each time, and to the same side."""


@pytest.mark.slow
def test_identical_candidates_tie_with_each_other_and_with_the_reference(
    tmp_path: Path, judge_batch: Callable[..., crucible.Run]
) -> None:
    task = write(tmp_path / "same.py", TASK)
    once, again, twice = (
        write(tmp_path / f"{name}.py", MODULE.format(name="ModelNew", times=times))
        for name, times in (("once", 1), ("again", 1), ("twice", 2))
    )
    said, sides = [], [set[int](), set[int](), set[int]()]
    for _ in range(TRIES):
        limits = crucible.Limits(shrink_s=0, stress_s=0)
        run = judge_batch(task, [once, again, twice], baselines="eager", limits=limits, fresh=True)
        ranks = {verdict.candidate: rank for rank, verdict in run.ranked}
        assert ranks["twice"] == 3, ranks
        timings = [run.verdict(name).timing for name in ("once", "again")]
        ratios = [t.speedups[0].interval for t in timings if isinstance(t, Measured)]
        said.append((ranks, ratios))
        found = [ranks["again"] - ranks["once"], *((low > 1) - (high < 1) for low, high in ratios)]
        for seen, side in zip(sides, found, strict=True):
            seen.add(side)
        if all(0 in seen or len(seen) == 2 for seen in sides):
            return
    pytest.fail(f"the same code differs: {said}")
