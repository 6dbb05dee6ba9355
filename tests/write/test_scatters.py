"""Convolutions of few output channels by warpgroup instructions, every input by all taps at once, on the emulator against
PyTorch in float64, and what the kernels must not do without."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conv_harness import (
    DECLARED,
    DTYPES,
    TWO,
    Built,
    Case,
    backward,
    build,
    forward,
    is_right,
    operands,
    source,
    transposed,
)

from crucible import emulator
from crucible.emission.file import flags
from crucible.emission.host import Host
from crucible.gpus import H200, known_gpu
from crucible.write.convolution.correlation import convolution, input_gradient
from crucible.write.convolution.lower import chosen, lower_convolution
from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.warpgroup.scatter import Scatter, best_scatters, scatter, scattered
from crucible.write.kernel import Lowered

P90 = input_gradient(convolution((128, 8, 16, 64, 64), (64, 8, 3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1))


def scatters(inner: int | None = None, **changed: int | tuple[int, ...]) -> Callable[[Tiling], Tiling]:
    """The best division, or that with this inner dim, changed."""

    def chosen(tiling: Tiling) -> Tiling:
        found = [each for each in best_scatters(tiling.made, 99, TWO) if inner in (None, each.inner)]
        return replace(found[0], **changed)  # type: ignore[arg-type]

    return chosen


CASES = [
    backward(forward("like_p90", (3, 8, 5, 7, 9), 24, (3, 3, 3), tiling=scatters(inner=0))),
    forward("bands", (2, 16, 9, 12, 10), 8, (3, 3, 3), padding=1, tiling=scatters(inner=0, box=(4, 5, 10))),
    forward("bands_of_planes", (2, 16, 9, 8, 10), 5, (2, 3, 2), tiling=scatters(inner=1, box=(3, 4, 9))),
    forward("image", (2, 12, 9, 13), 3, (3, 3), padding=1, chain="biased", tiling=scatters()),
    forward("image_in_bands", (2, 8, 11, 8), 8, (3, 5), padding=2, chain="shifted", tiling=scatters(box=(4, 8))),
    backward(forward("wide", (1, 3, 6, 150), 16, (3, 3), padding=1, tiling=scatters())),
    forward("wide_and_even", (1, 8, 4, 132), 8, (3, 2), chain="biased", tiling=scatters()),
    transposed("at_stride_1", (1, 8, 3, 5, 64), 8, (2, 2, 3), tiling=scatters(inner=0)),
    forward("all_of_64", (1, 8, 4, 3, 64), 8, (3, 2, 3), padding=1, tiling=scatters(inner=0)),
    forward("dilated", (1, 8, 2, 9, 12), 4, (1, 3, 3), dilation=2, tiling=scatters(inner=0)),
    forward("one_tap", (2, 20, 5, 6), 8, (1, 1), tiling=scatters()),
    forward("in_chunks", (1, 72, 4, 5, 8), 8, (2, 2, 2), tiling=scatters(inner=0)),
    forward("in_parts", (2, 8, 6, 8), 11, (3, 3), padding=1, chain="biased", tiling=scatters()),
    forward("odd_planes", (4, 7, 3, 5, 5), 8, (3, 2, 2), chain="shifted", tiling=scatters(inner=0)),
    forward("three_slots", (1, 8, 8, 6, 6), 8, (3, 3, 3), tiling=scatters(inner=0, slots=3, box=(6, 4, 4))),
]
BY_NAME = {case.name: case for case in CASES}


@pytest.fixture(scope="module")
def built() -> Built:
    return build(CASES)


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Case) -> None:
    text = built.lowered[case.name].kernels[1].text
    assert "every input by all" in text
    assert is_right(built, case) == ""


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("order", ["reverse", "random"])
@pytest.mark.parametrize("name", ["bands", "image_in_bands"])
def test_they_do_so_in_any_order_of_threads(built: Built, name: str, order: str) -> None:
    with emulator.schedule(order):
        assert is_right(built, BY_NAME[name]) == ""
