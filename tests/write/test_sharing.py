"""How lanes share the rows of a tile: by conditions that every division must meet, and by cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from conv_harness import TWO, Case, forward
from hypothesis import given
from hypothesis import strategies as st

from crucible.gpus import H200
from crucible.kinds.convolution.scene import Scene
from crucible.kinds.convolution.sharing import MOST_WORDS, Sharing
from crucible.schedule.convolution.packing import packed
from crucible.schedule.convolution.rows import Rows, plain
from crucible.schedule.convolution.tile_choice import best
from crucible.schedule.convolution.tiling import Tiling


def shared(case: Case, tiling: Tiling, rows: int = 64, threads: int = 256) -> Sharing:
    conv = case.fused
    scene = Scene(conv, tiling, packed("packed", tiling), H200)
    strides = [each.strides for each in (*scene.elementwise, *scene.operands) if any(each.strides[2:])]
    laid = Rows(tiling, tuple(plain(each, conv.made_shape) for each in strides), scene.dims, 4)
    return Sharing(scene, laid, rows, threads)


def divided(case: Case) -> list[Tiling]:
    return best(case.correlation, 4, 8, TWO)


@given(
    st.sampled_from(["none", "biased", "summed", "of_two", "sums"]),
    st.integers(3, 40),
    st.integers(3, 40),
    st.sampled_from([8, 16, 24, 64]),
    st.sampled_from([(64, 256), (16, 32), (16, 256), (48, 256)]),
)
def test_every_vector_of_a_row_is_taken_once(
    chain: str, height: int, width: int, channels: int, hands: tuple[int, int]
) -> None:
    """In rounds of as many loads as lanes have registers for; whole warps where some would be missing for sums."""
    case = forward("any", (2, 8, height, width), channels, (3, 3), padding=1, chain=chain)
    for tiling in divided(case):
        sharing = shared(case, tiling, *hands)
        assert sorted(taken(sharing)) == list(range(sharing.laid.vectors))
        assert 32 % sharing.lanes == 0
        words = sharing.words
        assert sharing.together == 1 or words * sharing.together <= MOST_WORDS[tiling.blocks - 1] or not words
        if sharing.scene.sums:
            assert sharing.rows * sharing.lanes % sharing.threads == 0 or sharing.lanes == 32
            assert channels % tiling.channels == 0 or sharing.lanes == 32


def taken(sharing: Sharing) -> Iterator[int]:
    """As the loops of `Tail` have it."""
    step = sharing.together * sharing.lanes
    for lane in range(sharing.lanes):
        for first in range(lane, sharing.laid.vectors, step):
            for j in range(sharing.together):
                if (v := first + j * sharing.lanes) < sharing.laid.vectors:
                    yield v


@pytest.mark.parametrize(("chain", "lanes", "together"), [("none", 16, 3), ("summed", 8, 6), ("of_two", 16, 3)])
def test_few_lanes_take_47_vectors(chain: str, lanes: int, together: int) -> None:
    """Of a warp 15 lanes would be at work in the second round; the more it loads, the fewer rounds at once."""
    case = forward("rows", (2, 8, 8, 94), 64, (1, 1), chain=chain)
    sharing = shared(case, replace(case.divided, box=(2, 94), blocks=1))
    assert sharing.laid.vectors == 47
    assert (sharing.lanes, sharing.together) == (lanes, together)
