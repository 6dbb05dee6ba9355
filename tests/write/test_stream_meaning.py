"""Convolutions whose weights are streamed mean what they say: run on the CPU, role by role, before there is text."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import test_warpgroup_streams
from conv_harness import TWO, Case, backward, forward, transposed
from test_walk_meaning import error

from crucible.kernel import nodes as ir
from crucible.kernel.verify import verify
from crucible.kinds.convolution.streams.lower import build_streams
from crucible.write.convolution.halo import UNITS
from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.warpgroup.stream_choice import best_streams, moved_by
from crucible.write.convolution.warpgroup.streams import Streams
from support import NIGHTLY, some

NEAR = 1e-6
WAYS = 12
"""Ways to divide a convolution that are drawn from, most promising first."""
EVERY = {case.name: case for case in (*test_warpgroup_streams.CASES, *test_warpgroup_streams.RUNS)}
OTHERWISE = ("streamed_of_three", "streamed_halves", "streamed_summed", "streamed_runs_grad")
"""Those that tests below change are tried as they are, too."""


def streaming(case: Case) -> ir.Kernel:
    assert isinstance(case.divided, Streams)
    (made,) = build_streams(case.fused, case.divided, TWO).kernels
    return made


@pytest.mark.parametrize("name", some(list(EVERY), 4, lambda name: name in OTHERWISE))
def test_kernels_mean_convolutions(name: str) -> None:
    kernel = streaming(EVERY[name])
    assert verify(kernel) == ()
    assert error(EVERY[name], kernel) < NEAR


# any shape, any legal division


def drawn(seed: int) -> Case:
    """The same on every run."""
    draw = random.Random(seed)
    while True:
        rank = draw.choice((1, 2, 2, 3, 3))
        kernel, stride = tuple(draw.randint(1, 3) for _ in range(rank)), draw.choice((1, 2, 2, 3))
        space = tuple(draw.randint(3, {1: 140, 2: 20, 3: 7}[rank]) for _ in range(rank))
        padding, shape = draw.randint(0, (min(kernel) - 1) // 2), (draw.randint(1, 2), draw.choice((8, 13, 24)), *space)
        dtype, chain = draw.choice(("float32", "float16")), draw.choice(("none", "shifted", "biased", "summed"))
        name, made = f"drawn_{seed}", draw.choice((5, 16, 40))
        if draw.random() < 0.5:
            layer = transposed(name, shape, made, kernel, stride=stride, padding=padding, dtype=dtype)
            case = backward(layer)
        else:
            case = forward(name, shape, made, kernel, stride=stride, padding=padding, dtype=dtype, chain=chain)
        asked = moved_by(case.fused)
        if ways := best_streams(case.correlation, UNITS[dtype], WAYS, TWO, *asked):
            return replace(case, tiling=given(draw.choice(ways)))


def given(way: Streams) -> Callable[[Tiling], Tiling]:
    return lambda _: way


@pytest.mark.parametrize("seed", range(16 if NIGHTLY else 8))
def test_any_division_of_any_shape_means_its_convolution(seed: int) -> None:
    case = drawn(seed)
    kernel = streaming(case)
    assert verify(kernel) == ()
    assert error(case, kernel) < NEAR
