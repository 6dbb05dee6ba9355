"""Pools inside of convolution kernels on the emulator, forward and backward, against PyTorch in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conv_harness import Built, Case, Tensors, build, forward, transposed
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pooled_harness import BEFORE, WAYS, PooledCase, is_right
from random_convolutions import layers

from crucible.write.convolution.halo import UNITS
from crucible.write.convolution.tiling import Tiling, best

pytestmark = pytest.mark.usefixtures("no_faults")
COUNT = 12


def case(of: Case, sizes: tuple[int, ...], chain: str = "bent", kind: str = "max", way: int = 0) -> PooledCase:
    return PooledCase(of, kind, sizes, chain, way)


def phases(name: str, **rest: object) -> Case:
    """A window is the phases of a position."""
    return transposed(name, (2, 9, 2, 3, 5), 20, (3, 3, 3), stride=2, padding=1, output_padding=1, **rest)


def way_that(pools_registers: bool, of: Case, sizes: tuple[int, ...], fits: Callable[[Tiling], bool]) -> int:
    ways = best(of.correlation, UNITS[of.dtype], WAYS, pool=sizes)
    found = [i for i, each in enumerate(ways) if each.pools_registers == pools_registers and fits(each)]
    return found[0]


REGISTERS = phases("in_registers")
TILE = phases("in_the_tile")
CASES = [
    case(REGISTERS, (2, 2, 2), way=way_that(True, REGISTERS, (2, 2, 2), lambda t: t.m_tiles == 1)),
    case(replace(REGISTERS, name="rows_of_warps"), (2, 2, 2),
         way=way_that(True, REGISTERS, (2, 2, 2), lambda t: t.rows == 2)),
    case(TILE, (2, 2, 2), way=way_that(False, TILE, (2, 2, 2), lambda t: True)),
    case(phases("mean_of_phases"), (2, 2, 2), "scaled", "avg"),
    case(phases("absolute"), (2, 2, 2), "folded"),
    case(phases("halves", dtype="float16"), (2, 2, 2)),
    case(phases("exact", exact=True), (2, 2, 2), "clamped"),
    case(phases("several_positions"), (4, 2, 1), "clamped"),
    case(transposed("odd_outputs", (2, 5, 4, 7), 16, (3, 3), stride=2, padding=1), (2, 2)),
    case(transposed("across_phases", (1, 8, 5, 8), 12, (3, 3), stride=2, padding=1, output_padding=1), (3, 5)),
    case(transposed("grouped_phases", (2, 6, 9), 10, (4,), stride=2, padding=1, groups=2), (2,)),
    case(forward("plain_3d", (2, 8, 5, 7, 9), 24, (3, 3, 3), padding=1), (2, 2, 2)),
    case(forward("plain_1d", (2, 8, 40), 16, (3,)), (4,), "none"),
    case(forward("left_over", (1, 5, 11, 13), 20, (3, 3), padding=1), (2, 3), "folded"),
    case(forward("strided", (2, 5, 13, 13), 17, (3, 2), stride=2, padding=1), (2, 2)),
    case(forward("grouped_mean", (2, 12, 8, 8), 18, (3, 3), groups=3, padding=1), (2, 2), "scaled", "avg"),
    case(forward("bfloats", (2, 7, 30), 12, (5,), padding=2, dtype="bfloat16"), (3,)),
    case(forward("two_slices", (1, 8, 6, 8), 64, (3, 3), padding=1), (2, 2)),
]  # fmt: skip


@st.composite
def pooled_layers(draw: st.DrawFn) -> PooledCase:
    layer = draw(layers())
    of = layer.case("random").correlation
    sizes = tuple(draw(st.integers(1, min(n, {1: 8, 2: 4, 3: 3}[len(of.axes)]))) for n in of.out_shape[2:])
    kind = draw(st.sampled_from(("max", "max", "avg")))
    chain = draw(st.sampled_from([*BEFORE] if kind == "max" else ["none", "scaled"]))
    return PooledCase(layer.case("random"), kind, sizes, chain, draw(st.integers(0, WAYS - 1)))


def drawn(count: int) -> list[PooledCase]:
    """The same each time."""
    found: list[PooledCase] = []

    @settings(max_examples=count, derandomize=True, database=None, phases=[Phase.generate],
              suppress_health_check=[*HealthCheck], deadline=None)  # fmt: skip
    @given(pooled_layers())
    def collect(each: PooledCase) -> None:
        found.append(replace(each, case=replace(each.case, name=f"random_{len(found)}")))

    collect()
    return found


RANDOM = drawn(COUNT)


@pytest.fixture(scope="module")
def built() -> Built:
    return build([*CASES, *RANDOM])


@pytest.mark.parametrize("case", [*CASES, *RANDOM], ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: PooledCase) -> None:
    assert is_right(built, case) == ""


@pytest.mark.parametrize("name", ["in_registers", "in_the_tile", "mean_of_phases", "left_over"])
def test_nan_and_infinity_come_out_where_they_do_in_pytorch(built: Built, name: str) -> None:
    def change(known: Tensors) -> None:
        x = known["x"].flatten()
        x[:: math.ceil(x.numel() / 3)] = math.nan
        x[1 :: math.ceil(x.numel() / 2)] = math.inf

    assert is_right(built, next(case for case in CASES if case.name == name), change) == ""


def test_the_tile_and_the_registers_are_both_pooled() -> None:
    ways = {
        best(case.case.correlation, UNITS[case.dtype], WAYS, pool=case.sizes)[case.way].pools_registers
        for case in CASES
        if case.name in ("in_registers", "in_the_tile")
    }
    assert ways == {True, False} and torch.tensor(COUNT) > 0
