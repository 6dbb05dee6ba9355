"""What a chain loads beside the products of a row of the tile, and how lanes share rows for it: a load is waited for
hundreds of clocks, so a lane has several on their way before it goes on with the first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from crucible.graph import ITEM_BYTES
from crucible.write.convolution.fused import is_of_row
from crucible.write.convolution.rows import Rows, plain
from crucible.write.convolution.scene import Scene
from crucible.write.families.source import CUDA_TYPES, converted
from crucible.write.program import Operand

MOST_WORDS = 24
"""Registers of a lane for what is on its way."""
LANES = (32, 16, 8)
"""That may take a row: eight times 16 bytes are the least that memory gives at full speed."""


class Load(NamedTuple):
    """For a vector of neighbouring outputs."""

    type_: str
    text: str
    """Of vector `v`."""
    words: int


@dataclass(frozen=True)
class RowLoads:
    """Of the rows of a tile that `threads` threads share."""

    scene: Scene
    laid: Rows
    rows: int
    threads: int

    @cached_property
    def each(self) -> dict[str, Load]:
        """By the operand, unless a row has one element of it."""
        return {each.name: self._load(each) for each in self.scene.operands if not is_of_row(each)}

    def _load(self, operand: Operand) -> Load:
        strides, vector = plain(operand.strides, self.scene.conv.made_shape), self.laid.vector
        word, offset = self.scene.word[operand.name], self.laid.offset(strides)
        if strides[-1] == 0:
            return Load("float", converted(f"{word}[{offset}]", operand.dtype, "float32"), 1)
        type_ = f"Pack<{CUDA_TYPES[operand.dtype]}, {vector}>"
        return Load(type_, f"load<true, {vector}>({word} + {offset})", -(-vector * ITEM_BYTES[operand.dtype] // 4))

    @cached_property
    def lanes(self) -> int:
        """That take a row. Where nothing is loaded, or all lanes of a warp put a channel's values together, as many as
        it has vectors. Else those of whom fewest have nothing to do; of these, those that have most on its way."""
        if self.each and not self._needs_warps:
            return min(self._choices, key=lambda lanes: (self._rounds(lanes) * lanes, -self.at_once(lanes), -lanes))
        together = self.scene.sums or self.scene.conv.reductions
        return 32 if together else min(32, 1 << (self.laid.vectors - 1).bit_length())

    @property
    def _choices(self) -> list[int]:
        """32, or fewer where all threads have as many rows."""
        return [lanes for lanes in LANES if lanes == 32 or self.rows % (self.threads // lanes) == 0]

    @property
    def _needs_warps(self) -> bool:
        """Lanes that leave at a row that is no channel would be missing where others add up."""
        conv, tiling = self.scene.conv, self.scene.tiling
        ragged = conv.correlation.out_channels % tiling.channels > 0
        return bool(conv.reductions) or (ragged and bool(self.scene.sums))

    def at_once(self, lanes: int) -> int:
        """Vectors of a lane that are loaded together, of so many lanes a row: all, or equal parts."""
        most = max(1, MOST_WORDS // sum(each.words for each in self.each.values()))
        return -(-self._rounds(lanes) // -(-self._rounds(lanes) // most))

    def _rounds(self, lanes: int) -> int:
        return -(-self.laid.vectors // lanes)
