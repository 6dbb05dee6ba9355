"""Estimates of convolution kernels against what was measured of them on an H200."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crucible.algebra.convolution.correlation import convolution, input_gradient
from crucible.gpus import H200
from crucible.schedule import cost
from crucible.schedule.convolution.estimate import read_sectors, written_sectors
from crucible.schedule.convolution.tile_choice import _tilings
from crucible.schedule.convolution.warpgroup.walks import Chain, walk
from crucible.schedule.convolution.weight_division import _divisions
from crucible.schedule.machine import machine_of

ROOT = Path(__file__).parents[2]
APART = 4
"""Words between those that neighbouring lanes stored in the kernels of the file: nvcc had taken packs apart. Written
since then, it is 1."""
MEASURED: dict[str, Any] = json.loads((ROOT / "benchmarks/results/convolutions_h200.json").read_text())["layers"]
NAMES = [name for name in MEASURED if "softmax" not in name]
TENSORS = {"sum over space": 0}


class Way(NamedTuple):
    estimate: float
    """Milliseconds."""
    measured: float


@cache
def benchmark() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import convolutions
    finally:
        sys.path.pop(0)
    return convolutions


def estimates(name: str) -> dict[str, float]:
    """Of all ways of a layer and direction, the least of those that are called alike."""
    found: dict[str, float] = {}
    for words, clocks in clocks_of(name):
        ms = cost.milliseconds(machine_of(H200), clocks, H200.sms)
        found[words] = min(ms, found.get(words, math.inf))
    return found


def clocks_of(name: str) -> Iterator[tuple[str, float]]:
    module = benchmark()
    layer = next(layer for layer in module.LAYERS if layer.name == name.split(": ")[0])
    direction, of = name.split(": ")[1], layer.correlation
    if direction == "weight gradient":
        of = input_gradient(of) if layer.is_transposed else of
        spreads = (module.spread(layer), None) if layer.is_transposed else (None, module.spread(layer))
        for each in _divisions(of, 4, H200, spreads):
            words = f"{each.channels} x {each.n_tiles * 8} channels, box {each.box}, {each.blocks} blocks"
            yield words, each.total_clocks  # the file does not say which were loaded ahead
        return
    turned = direction == "input gradient"
    of, given = (input_gradient(of), ((), layer.windows)) if turned else (of, (layer.windows, ()))
    for tiling in _tilings(of, 4, H200, *given):
        yield module.words_of(tiling), tiling.total_clocks_with(TENSORS.get(direction, 1), APART)


@cache
def ways(name: str) -> list[Way]:
    known = estimates(name)
    return [Way(known[way["way"]], way["ms"]) for way in MEASURED[name]["ways"] if way["way"] in known]


@pytest.mark.parametrize("name", NAMES)
def test_estimates_are_near_what_was_measured(name: str) -> None:
    """Weight gradients were measured with bank conflicts, and with few threads that loaded gradients of small boxes."""
    low = 0.6 if "weight" in name else 0.75
    found = ways(name)
    assert len(found) >= 3
    for way in found:
        assert low < way.estimate / way.measured < 1.3, way


@pytest.mark.parametrize("name", NAMES)
def test_the_way_of_least_estimate_is_near_the_fastest(name: str) -> None:
    found = ways(name)
    chosen, fastest = min(found), min(way.measured for way in found)
    assert chosen.measured < fastest * (1.2 if "weight" in name else 1.05)


def test_sectors_by_where_runs_begin() -> None:
    """Of rows of 62 floats, half of those written begin in the middle of a sector."""
    partly = machine_of(H200).sm.partly
    assert written_sectors((1, 8), (4, 64), 4, partly) == 1
    assert written_sectors((2, 64), (4, 64), 4, partly) == 16
    assert written_sectors((1, 32), (4, 62), 4, partly) > 1.5 * written_sectors((1, 32), (4, 64), 4, partly)
    assert read_sectors((1, 32), (4, 62), 4) == 4.875


def test_walks_count_functions_that_do_not_branch_and_share_few_channels() -> None:
    """Level 2's task 48 took 2.6 times its estimate: 16 channels were one warp's, whose tanh was not counted."""

    def clocks(channels: int, functions: int) -> float:
        one, none = (1, 1, 1), (0, 0, 0)
        of = convolution((128, 3, 16, 64, 64), (channels, 3, 3, 3, 3), one, none, one, 1)
        found = walk(of, 4, H200, Chain(functions=functions))
        assert found is not None
        return found.total_clocks

    assert clocks(64, 400) > 2 * clocks(64, 0)
    assert clocks(16, 400) < 0.5 * clocks(64, 400)


INSTRUCTIONS = json.loads((ROOT / "benchmarks/results/instructions_h200.json").read_text())["clocks"]


@pytest.mark.parametrize("columns", [8, 16, 24, 32, 40, 48, 56, 64, 72, 96, 128, 256])
def test_instructions_of_few_columns_wait_for_their_rows_from_shared_memory(columns: int) -> None:
    """Of two warpgroups at once, whose instructions follow each other without a gap."""
    estimated = cost.warpgroup_products(machine_of(H200), columns, rows=64)
    assert estimated == pytest.approx(INSTRUCTIONS[f"n_{columns}_groups_2"], rel=0.01)
