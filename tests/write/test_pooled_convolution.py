"""Pools inside of convolution kernels on the emulator, forward and backward, against PyTorch in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from conv_harness import ONE, Built, Case, Tensors, build, forward, transposed
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pooled_harness import BEFORE, WAYS, PooledCase, SpreadCase, is_right, is_spread_right
from random_convolutions import layers

from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.tile_choice import best
from crucible.schedule.convolution.tiling import Tiling
from support import some

pytestmark = pytest.mark.usefixtures("no_faults")
COUNT, APART = 3, 7
"""Random ones, and how many of those that hypothesis draws, each like the one before, there are to one."""


def case(of: Case, sizes: tuple[int, ...], chain: str = "bent", kind: str = "max", way: int = 0) -> PooledCase:
    return PooledCase(of, kind, sizes, chain, way)


def phases(name: str, **rest: object) -> Case:
    """A window is the phases of a position."""
    return transposed(name, (2, 9, 3, 5), 20, (3, 3), stride=2, padding=1, output_padding=1, **rest)


def way_that(fits: Callable[[Tiling], bool], of: Case, sizes: tuple[int, ...]) -> int:
    ways = best(of.correlation, UNITS[of.dtype], WAYS, ONE, pool=sizes)
    return next(number for number, each in enumerate(ways) if fits(each))


SLICES, TILE = phases("in_slices_of_registers"), phases("in_the_tile")
BEYOND = forward("a_box_of_no_window", (1, 4, 4, 9, 4), 4, (3, 3, 3), padding=1)
CASES = [
    case(transposed("in_registers", (2, 9, 2, 3, 5), 20, (3, 3, 3), stride=2, padding=1, output_padding=1), (2, 2, 2)),
    case(SLICES, (2, 2), way=way_that(lambda t: t.pools_registers and t.m_tiles == 2, SLICES, (2, 2))),
    case(TILE, (2, 2), way=way_that(lambda t: not t.pools_registers, TILE, (2, 2))),
    case(phases("mean_of_phases", dtype="float16"), (2, 2), "scaled", "avg"),
    case(transposed("odd_outputs", (2, 6, 4, 7), 16, (3, 3), stride=2, padding=1, groups=2), (2, 2), "folded"),
    case(transposed("across_phases", (1, 8, 5, 8), 12, (3, 3), stride=2, padding=1, output_padding=1), (3, 5)),
    case(forward("plain", (2, 8, 5, 7, 9), 24, (2, 3, 1), padding=1, exact=True), (2, 2, 2), "clamped"),
    case(forward("left_over", (1, 5, 11, 13), 20, (3, 3), padding=1), (2, 3), "folded"),
    case(forward("grouped_mean", (2, 12, 8, 8), 18, (3, 3), groups=3, padding=1), (2, 2), "scaled", "avg"),
    case(forward("merged", (2, 24, 8, 8), 24, (3, 3), groups=24, padding=1), (2, 2), "scaled"),
    case(BEYOND, (2, 2, 2), way=way_that(lambda t: t.made_box[1] == 4 and t.boxes[1] == 2, BEYOND, (2, 2, 2))),
    case(forward("bfloats", (2, 7, 30), 12, (5,), padding=2, dtype="bfloat16"), (3,)),
]


SPREAD = [
    SpreadCase(transposed("spread_1d", (1, 9, 200), 72, (3,), stride=2, padding=1, output_padding=1), (2,), False),
    SpreadCase(transposed("spread_2d", (2, 9, 7, 9), 20, (3, 2), stride=2, padding=1), (2, 3), True),
    SpreadCase(forward("spread_over_outputs", (1, 8, 607), 64, (3,), padding=1), (2,), False),
    SpreadCase(forward("spread_merged", (2, 24, 7, 18), 24, (3, 3), groups=24), (2, 3), True),
    SpreadCase(forward("spread_halves", (2, 12, 7, 70), 20, (3, 3), dtype="float16"), (2, 3), True),
]


SPREAD_HERE = some(SPREAD, 2)


@st.composite
def pooled_layers(draw: st.DrawFn) -> PooledCase:
    layer = draw(layers())
    of, kind = layer.case("random").correlation, draw(st.sampled_from(("max", "max", "avg")))
    some = {1: (1, 2, 3, 5, 8), 2: (1, 2, 3, 4), 3: (1, 2, 3)}[len(of.axes)]
    some = some if kind == "max" else (1, 2, 4)  # of others the mean is rounded to TF32
    sizes = tuple(draw(st.sampled_from([n for n in some if n <= most])) for most in of.out_shape[2:])
    chain = draw(st.sampled_from([*BEFORE] if kind == "max" else ["none", "scaled"]))
    return PooledCase(layer.case("random"), kind, sizes, chain, draw(st.integers(0, WAYS - 1)))


def drawn(count: int) -> list[PooledCase]:
    """The same each time."""
    found: list[PooledCase] = []

    @settings(max_examples=count * APART, derandomize=True, database=None, phases=[Phase.generate],
              suppress_health_check=[*HealthCheck], deadline=None)  # fmt: skip
    @given(pooled_layers())
    def collect(each: PooledCase) -> None:
        found.append(replace(each, case=replace(each.case, name=f"random_{len(found)}")))

    collect()
    return found[::APART]


RANDOM = drawn(COUNT)
WITH_NAN = ("in_registers", "in_the_tile", "mean_of_phases", "left_over")
TRIED = some([*CASES, *RANDOM], 6, lambda case: case.case.name in WITH_NAN)


@pytest.fixture(scope="module")
def built() -> Built:
    return build([*TRIED, *SPREAD_HERE])


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: PooledCase) -> None:
    assert is_right(built, case) == ""


@pytest.mark.parametrize("case", SPREAD_HERE, ids=lambda case: case.name)
def test_gradients_of_windows_are_those_of_their_elements(built: Built, case: SpreadCase) -> None:
    assert is_spread_right(built, case) == ""


@pytest.mark.parametrize("name", WITH_NAN)
def test_nan_and_infinity_come_out_where_they_do_in_pytorch(built: Built, name: str) -> None:
    def change(known: Tensors) -> None:
        x = known["x"].flatten()
        x[:: math.ceil(x.numel() / 3)] = math.nan
        x[1 :: math.ceil(x.numel() / 2)] = math.inf

    assert is_right(built, next(case for case in CASES if case.case.name == name), change) == ""
