"""How weights lie in the order in which tensor cores take them."""

from __future__ import annotations

from crucible.algebra.buffer import Buffer
from crucible.schedule.convolution.tiling import Tiling


def packed(name: str, tiling: Tiling) -> Buffer:
    """Of a convolution: [group][tile of channels][step][product][16 channels][lane][4 words]; what lies outside of the
    weight is 0."""
    of = tiling.of
    words = of.groups * tiling.channel_tiles * tiling.steps * tiling.step_weight_words
    return Buffer(f"{name}_packed", "int32", words)
