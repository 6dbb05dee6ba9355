"""Convolution kernels of random shapes, parameters and divisions on the GPU, forward and backward, beside PyTorch in
float64: what `tests/write/test_random_convolutions.py` does on the emulator, of more cases."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "write"))

from building import BUILDS, load
from conv_harness import build, is_right
from random_convolutions import directions, drawn

COUNT = 216
"""Layers, of which each has three kernels."""


def test_two_hundred_layers_are_right() -> None:
    layers = drawn(COUNT)
    assert len(layers) >= 200
    cases = directions(layers)
    built = build(cases, load, "cuda", BUILDS)
    wrong = [words for case in cases if (words := is_right(built, case))]
    assert not wrong, f"{len(wrong)} of {len(cases)}: {wrong[:3]}"
