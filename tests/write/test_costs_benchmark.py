"""`benchmarks/costs.py` finds costs in times that came of them."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from crucible.gpus import H200
from crucible.kinds.convolution.ways import ways
from crucible.schedule.machine import machine_of
from crucible.tuning.search import questions

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import costs

RECORD = machine_of(H200)


@cache
def every() -> list[Any]:
    """What a strided convolution with its gradients asks, in TF32 and where float32 is kept, and the products."""
    asked = [each for name, plan in costs.plans(H200) if "strided" in name for each in questions(plan)]
    pairs = [(question, way) for question in asked for way in ways(question, H200, 1)]
    return [costs.convolved(f"{k}", *pair, H200) for k, pair in enumerate(pairs)] + list(costs.products(H200))


def samples(path: str, factor: float) -> list[Any]:
    planted = costs.changed(RECORD, path, costs.value_of(RECORD, path) * factor)
    return [costs.Sample(each.name, each.estimate, each.estimate(planted)) for each in every()]


@pytest.mark.parametrize("factor", [1, 2, 0.5])
@pytest.mark.parametrize("path", [
    "warps.round_clocks", "warps.exact_times", "streams.round_clocks", "products.turned_clocks",
    "products.turned_mixed_clocks",
])  # fmt: skip
def test_what_was_planted_is_found(path: str, factor: float) -> None:
    found = costs.fitted(samples(path, factor), RECORD, path)
    assert found.value == pytest.approx(costs.value_of(RECORD, path) * factor)
    assert found.low <= found.value <= found.high and found.how.startswith("fitted to")


def test_what_no_kernel_shows_keeps_its_value() -> None:
    found = costs.fitted(samples("pools.start_clocks", 2), RECORD, "pools.start_clocks")
    assert (found.value, found.how) == (RECORD.pools.start_clocks, "not seen")


def test_every_field_is_told() -> None:
    found = costs.measured(samples("sm.ghz", 1), {"sm.copied_bytes": 20.0}, RECORD)
    assert found["sm.copied_bytes"] == (20.0, 20.0, 20.0, "directly")
    lines = costs.told(found, RECORD).splitlines()[1:]
    assert [line.split()[0] for line in lines] == [f"{part}.{field}" for part, field, _ in costs.parts(RECORD)]
