"""Convolutions by warpgroup instructions whose weights are streamed, on the emulator against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conv_harness import TWO, Built, Case, backward, build, forward, is_right, transposed

from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.warpgroup.streams import stream

P38 = transposed("p38", (32, 32, 16, 32, 32), 64, (3, 3, 3), stride=2, padding=1, output_padding=1)


def streams(**changed: int | tuple[int, ...]) -> Callable[[Tiling], Tiling]:
    """The best division, changed; boxes are of tiles of 8 x 8, unless something else is said."""
    changed = ({"tile_rows": 8} if "box" in changed else {}) | changed

    def chosen(tiling: Tiling) -> Tiling:
        found = stream(tiling.made, tiling.unit, TWO)
        assert found is not None
        return replace(found, **changed)  # type: ignore[arg-type]

    return chosen


def of_p38(name: str, shape: tuple[int, ...], made: int, **changed: int | tuple[int, ...]) -> Case:
    """An input gradient like P38's: from `made` channels, twice as large, to those of `shape`."""
    layer = transposed(name, shape, made, (3,) * (len(shape) - 2), stride=2, padding=1, output_padding=1)
    return replace(backward(layer), tiling=streams(**changed))


def of_layer(name: str, shape: tuple[int, ...], made: int, kernel: tuple[int, ...], dtype: str = "float32",
             chain: str = "none", of: dict[str, int] | None = None, **changed: Any) -> Case:  # fmt: skip
    """A convolution of the parameters `of`."""
    given = {"padding": 1} if of is None else of
    return forward(name, shape, made, kernel, dtype=dtype, chain=chain, tiling=streams(**changed), **given)


CASES = [
    of_p38("once", (1, 16, 5, 16, 8), 16, once=True, box=(1, 16, 8), walk=3, slots=2),
    of_p38("ragged", (2, 20, 3, 11, 9), 19, once=True, box=(1, 8, 16), walk=2, slots=3),
    of_p38("each", (1, 24, 3, 9, 17), 8, once=False, box=(1, 16, 8), walk=2, slots=4),
    of_p38("two_dims", (3, 40, 9, 16), 24, box=(8, 16), channels=24, slots=2),
    of_p38("one_dim", (2, 8, 130), 16, box=(128,), tile_rows=1),
    of_layer("three_live", (1, 16, 6, 8, 14), 16, (3, 3, 3), once=True, box=(1, 8, 16), walk=4, slots=3),
    of_layer("of_three", (1, 24, 11, 10, 26), 32, (4, 2, 3), chain="biased", of={"stride": 3, "padding": 1},
             once=True, box=(1, 8, 16), walk=2),
    of_layer("spread", (1, 8, 8, 12, 20), 16, (2, 2, 2), chain="shifted", of={"dilation": 2, "padding": 1},
             once=True, box=(1, 8, 16), walk=3),
    of_layer("spread_planes", (1, 8, 8, 12, 20), 16, (2, 1, 2), of={"dilation": 2}, once=False, box=(1, 8, 16)),
    of_layer("between", (1, 8, 9, 9, 18), 16, (1, 2, 1), of={"stride": 2}, once=True, box=(1, 8, 16), walk=3),
    of_layer("in_pieces", (1, 16, 9, 70), 40, (3, 3), chain="shifted", box=(2, 64), tile_rows=1),
    of_layer("wide", (1, 16, 9, 9), 256, (3, 3), box=(16, 8), channels=256, slots=2),
    of_layer("halves", (2, 40, 9, 19), 72, (3, 3), "float16", "shifted", {"stride": 2, "padding": 1}, box=(8, 16)),
    of_layer("bfloats", (1, 24, 4, 9, 16), 48, (3, 3, 3), "bfloat16", "biased", once=False, box=(1, 8, 16),
             channels=24),
    of_layer("five_taps", (2, 12, 70), 8, (5,)),
]  # fmt: skip


@pytest.fixture(scope="module")
def built() -> Built:
    return build(CASES)


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: Case) -> None:
    assert built.lowered[case.name].kernels[1].architecture == "sm_90a"
    assert is_right(built, case) == ""
