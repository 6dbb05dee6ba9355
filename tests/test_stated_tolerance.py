"""A benchmark's rule with the tolerance that a task states: a share of elements may be beyond it, none beyond a cap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import crucible
from conftest import QUICK
from crucible.contract import Tolerance
from crucible.judge.oracle.compare import Difference, Expected, benchmark_rule
from crucible.task import Task
from support import PLAIN, SMALL_TASK, write

WANT = torch.full((100,), 2.0)


def compared(stated: Tolerance | None, *off: float) -> Difference:
    """The first elements are off by so much."""
    got = WANT.clone()
    got[: len(off)] += torch.tensor(off)
    difference = Difference(benchmark_rule(Expected("output", WANT, torch.float32, (100,)), WANT, stated))
    difference.add(got)
    return difference


@pytest.mark.parametrize(
    ("stated", "off", "ok"),
    [
        (None, (1e-3,), False),
        (Tolerance(0.1, 0.0), (0.09,), True),
        (Tolerance(0.1, 0.0), (0.11,), False),
        (Tolerance(0.0, 0.1), (0.19,), True),
        (Tolerance(0.0, 0.1), (-0.21,), False),
        (Tolerance(0.0, 0.1), (0.21,), False),  # relative to the reference's 2, not to the candidate's 2.21
        (Tolerance(0.1, 0.0, matched=0.98), (5.0, 5.0), True),
        (Tolerance(0.1, 0.0, matched=0.98), (5.0, 5.0, 5.0), False),
        (Tolerance(0.1, 0.0, matched=0.98, cap=4.0), (5.0,), False),
        (Tolerance(0.1, 0.0, matched=0.98, cap=4.0), (3.0,), True),
        (Tolerance(0.1, 0.0, cap=0.05), (0.09,), False),
        (Tolerance(0.1, 0.0, matched=0.0), (float("nan"),), False),
    ],
)
def test_what_is_allowed(stated: Tolerance | None, off: tuple[float, ...], ok: bool) -> None:
    assert compared(stated, *off).result(0).ok is ok


def test_the_largest_difference_is_told() -> None:
    assert compared(None, 0.5, -3.0).result(0).largest == 3.0
    exact = Difference(Expected("output", torch.zeros(4), torch.int64, (4,)))
    exact.add(torch.tensor([0, 0, 1, 0]))
    assert exact.result(0).largest is None


def test_few_beyond_count_as_none() -> None:
    assert compared(Tolerance(0.1, 0.0, matched=0.98), 5.0, 5.0).beyond == 0
    assert compared(Tolerance(0.1, 0.0, matched=0.98), 5.0, 5.0, 5.0).beyond == 3
    assert compared(None, 5.0).beyond == 1


@pytest.mark.slow
def test_a_tasks_tolerance_decides_under_the_benchmarks_contract(tmp_path: Any) -> None:
    shifted = write(tmp_path / "shifted.py", PLAIN.read_text().replace("+ self.bias", "+ self.bias + 0.05"))
    assert "+ 0.05" in shifted.read_text()
    task = Task.load(SMALL_TASK)

    def passes(**tolerance: float) -> bool:
        run = crucible.judge(replace(task, tolerance=tolerance), [shifted], contract="kernelbench", **QUICK)
        return run.verdicts[0].evaluation

    assert not passes() and passes(atol=0.06, rtol=0.0) and not passes(atol=0.06, rtol=0.0, cap=0.04)
