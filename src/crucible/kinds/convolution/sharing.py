"""How lanes share the rows of a tile, and what a chain loads there beside the products. A load is waited for hundreds
of clocks, so a lane has several on their way before it goes on with the first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crucible.algebra.convolution.fused import is_of_row
from crucible.algebra.program import Operand
from crucible.graph import ITEM_BYTES
from crucible.kinds.convolution.scene import Scene
from crucible.schedule.convolution.rows import Rows, plain

MOST_WORDS = (24, 8)
"""Registers of a lane for what is on its way, of one block a multiprocessor and of two."""
MOST_TOGETHER = 4
"""Vectors that stand in the code one behind the other, where nothing is loaded."""
LANES = (32, 16, 8)
"""That may take a row: eight times 16 bytes are the least that memory gives at full speed."""


@dataclass(frozen=True)
class Sharing:
    """Of the rows of a tile among `threads` threads."""

    scene: Scene
    laid: Rows
    rows: int
    threads: int

    @cached_property
    def words(self) -> int:
        """Registers for what is loaded for a vector; not what a row has one element of."""
        return sum(self._words(each) for each in self.scene.operands if not is_of_row(each))

    def _words(self, operand: Operand) -> int:
        strides = plain(operand.strides, self.scene.conv.made_shape)
        return -(-self.laid.vector * ITEM_BYTES[operand.dtype] // 4) if strides[-1] else 1

    @cached_property
    def lanes(self) -> int:
        """That take a row: those of whom fewest have nothing to do, then those that need no division to know their run,
        then those that have most on its way."""
        if self._needs_warps:
            return 32
        if self.laid.vectors < LANES[-1] and not self.scene.sums:
            return 1 << (self.laid.vectors - 1).bit_length()
        choices = [lanes for lanes in LANES if lanes == 32 or self.rows % (self.threads // lanes) == 0]
        return min(choices, key=lambda n: (self._rounds(n) * n, self._divides(n), -self._together(n), -n))

    @property
    def _needs_warps(self) -> bool:
        """Whether all lanes of a warp put a channel's values together, or some would be missing for it that left at a
        row which is no channel."""
        conv, tiling = self.scene.conv, self.scene.tiling
        ragged = conv.correlation.out_channels % tiling.channels > 0
        return bool(conv.reductions) or (ragged and bool(self.scene.sums))

    def _divides(self, lanes: int) -> bool:
        """Whether a lane's vectors are at other places in their runs."""
        return self.laid.runs > 1 and self.laid.run // self.laid.vector % lanes > 0

    @property
    def together(self) -> int:
        """Vectors of a lane that are loaded before it goes on with the first: all, or equal parts."""
        return self._together(self.lanes)

    def _together(self, lanes: int) -> int:
        words = MOST_WORDS[self.scene.tiling.blocks - 1]
        most = max(1, words // self.words) if self.words else MOST_TOGETHER
        rounds = self._rounds(lanes)
        return -(-rounds // -(-rounds // most))

    def _rounds(self, lanes: int) -> int:
        return -(-self.laid.vectors // lanes)
