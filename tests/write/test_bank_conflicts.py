"""Shared memory in convolution kernels, by the emulator's trace: wavefronts of each line against the fewest it can do
with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conv_harness import ONE, Built, Case, WeightCase, build, forward, is_right, transposed

from crucible import emulator
from crucible.emulator.trace import Line
from crucible.gpus import H200
from crucible.schedule.convolution.tile_choice import _tilings, tile
from crucible.schedule.convolution.tiling import Tiling

PAIRED = transposed("conflicts_paired", (1, 16, 2, 4, 32), 16, (3, 3, 3), stride=2, padding=1)
DEALT = forward("conflicts_dealt", (1, 8, 8, 8, 32), 16, (3, 3, 3), stride=2, padding=1,
                tiling=lambda tiling: replace(tiling, ahead=False))  # fmt: skip
AHEAD = forward("conflicts_ahead", (1, 8, 2, 4, 32), 16, (3, 3, 3), padding=1,
                tiling=lambda tiling: replace(tiling, ahead=True))  # fmt: skip
CASES: list[Case | WeightCase] = [PAIRED, DEALT, AHEAD, WeightCase(PAIRED)]


@pytest.fixture(scope="module")
def built() -> Built:
    return build(CASES)


def shared(built: Built, case: Case | WeightCase) -> list[Line]:
    with emulator.trace() as seen:
        assert is_right(built, case) == ""
    return [line for line in seen.lines if line.space == "shared"]


def chosen(case: Case) -> Tiling:
    found = tile(case.correlation, 4, ONE)
    assert found is not None
    return case.tiling(found)


def test_two_phases_go_to_the_tile_without_conflicts(built: Built) -> None:
    """And from there to memory, and inputs into shared memory and back."""
    assert chosen(PAIRED).is_paired
    lines = shared(built, PAIRED)
    assert any(line.operation == "store" and line.width == 16 for line in lines)
    assert all(line.wavefronts == line.ideal_wavefronts for line in lines)


def test_dealt_positions_meet_at_the_ends_of_rows_alone(built: Built) -> None:
    """Rows of an odd width begin with even positions and odd ones by turns: where one ends, eight threads in a row have
    neighbours of two kinds. A place for each that no other has would take a third more memory."""
    assert chosen(DEALT).lane_stride == 2
    lines = [line for line in shared(built, DEALT) if line.operation == "store"]
    assert sum(line.wavefronts for line in lines) < 1.4 * sum(line.ideal_wavefronts for line in lines)
    assert all(line.wavefronts < 1.5 * line.ideal_wavefronts for line in lines)


def test_copies_of_single_words_meet_in_pairs(built: Built) -> None:
    """Four lanes of a warp and channel write into a bank; two where its halves copy different channels. Four halves
    of halves would meet nowhere, but read from four lines of memory."""
    lines = shared(built, AHEAD)
    copies = [line for line in lines if line.operation == "store" and line.width == 4]
    assert copies and all(line.wavefronts <= 2 * line.ideal_wavefronts for line in copies)
    assert all(line.wavefronts == line.ideal_wavefronts for line in lines if line not in copies)


def test_gradients_of_weights_read_without_conflicts(built: Built) -> None:
    lines = shared(built, WeightCase(PAIRED))
    assert all(line.wavefronts == line.ideal_wavefronts for line in lines if line.operation == "load")
    assert all(line.wavefronts < 1.5 * line.ideal_wavefronts for line in lines)


def test_weights_of_both_turns_begin_at_whole_rows_of_banks() -> None:
    """Else copies of 16 bytes lie in two rows of banks: 1.03 and 1.04 times as long, two convolutions on an H200."""
    conv = forward("conflicts_turns", (16, 32, 57, 61), 32, (7, 7), stride=3, padding=3)
    found = [each for each in _tilings(conv.correlation, 4, H200, (), ()) if each.weight_turns == 2]
    assert any(max(each.halo_words, each.tile_words) % 32 for each in found)
    assert not any((each.weight_words + each.turn_words) % 32 for each in found)
