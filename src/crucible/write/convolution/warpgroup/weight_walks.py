"""How long a division of the gradient of a convolution's weight among warpgroups takes, as estimated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crucible.write.convolution.estimate import read_sectors
from crucible.write.convolution.warpgroup.walks import BYTES_A_CLOCK, ROWS
from crucible.write.convolution.warpgroup.weight_shape import COLUMNS, TEAMS, WeightShape

LEAST_CLOCKS, STEP_CLOCKS, LOAD_CLOCKS = 16, 500, 900
"""Assumed: of an instruction, however few its columns; of a step beside its products (its words are rounded, the last
instructions come to their end); until what is staged has come from memory."""
PLANE_CLOCKS, ROUND_CLOCKS, READ_CLOCKS, UNIT_CLOCKS, PACKED_CLOCKS = 430, 200, 45, 22, 60
"""Of what a warp stages, by where Nsight Compute found P38's to be on the H200 (3,180 clocks a plane of input of 3,320,
P74's 3,250 of 3,430, in two rounds each that are loaded and stored one after the other): of a plane beside its rounds
(barriers, what is written is published), of a round beside its pieces (addresses, guards, until the first words are
there), of a load of a piece, of 16 bytes stored (12 words are rounded for four of these), of half types (assumed)."""
BRING_CLOCKS, COPY_CLOCKS = 490, 65
"""Likewise: of a plane that bulk copies bring, and of each of them, one lane after the other."""
BY_THREADS = 1.05
"""Times what planes by bulk copies take to come: P90's by threads took 0.760 ms where 0.726 was estimated."""
BEYOND = 1.36
"""Times what its products take by themselves, P90's forward took on the H200."""


@dataclass(frozen=True)
class WeightWalks(WeightShape):
    """A division and its times, in clocks of a multiprocessor."""

    @cached_property
    def clocks(self) -> float:
        """Estimate for a plane of positions: tensor cores take N / 2 for each instruction, the two warpgroups overlap,
        and both memory and the warps that stage go on beside."""
        step = self.depths * self.chunks * max(self.columns / 2, LEAST_CLOCKS)
        multiplied = self.steps * max(step, (step + STEP_CLOCKS) / TEAMS) * BEYOND
        beside = max(self._staged, self._brought) if self.has_bringer else self._staged + self._brought
        return max(multiplied, self.strides[0] * beside, self._moved, self._passed)

    @property
    def _units(self) -> int:
        """That a thread stores of a piece."""
        return self.piece_words // 4 * len(self.taps[2].numbers)

    @property
    def _staged(self) -> float:
        """Of a plane of input, by the warp with most pieces: it is by itself on its scheduler, so that it waits for
        each of its instructions."""
        rounds = -(-self.pieces // (self.staging_warps * 32 * self.pieces_together))
        stored = self._units * (UNIT_CLOCKS if self.item == 4 else PACKED_CLOCKS)
        loads = self.piece_loads * (2 if self.windows else 1)
        each = ROUND_CLOCKS + self.pieces_together * (loads * READ_CLOCKS + stored)
        return PLANE_CLOCKS + rounds * (each if self.raw else each + LOAD_CLOCKS)

    @property
    def _brought(self) -> float:
        """Likewise, by the warp that brings it."""
        return BRING_CLOCKS + self.channel_tiles * COLUMNS * COPY_CLOCKS if self.raw else 0

    @property
    def _passed(self) -> float:
        """Wavefronts through L1 and shared memory: a line of 128 bytes of the gradient for each of eight channels, or
        of the input for each piece of them; 128 bytes of shared memory."""
        warps = -(-min(ROWS, self.of.out_channels) // 16)
        grads = self.steps * warps * 2 * self.depths * 2 / self.vector * 8
        beside = min(4, self.pieces_a_row)
        lines = 32 / beside * max(1, beside * self.piece * self.strides[2] * self.item / 128)
        pieces = self.strides[0] * self.pieces / 32
        staged = pieces * (self.piece_loads * (4 if self.raw else lines) + self._units * 4)
        brought = self.strides[0] * self.raw_units / 8 if self.raw else 0
        columns = self.steps * self.depths * self.chunks * self.columns / 4
        return 1.05 * (grads + staged + brought + columns)

    @property
    def _moved(self) -> float:
        """Bytes; what several parts read comes from the L2 cache half of the time."""
        rank, shared = len(self.of.axes), 0.5 if self.parts > 1 else 1.0
        width = (self.width - 1) * self.strides[2] + self.taps[2].reach + 1
        grads = _sectors((self.rows, self.width)[-rank:], self.outputs[-2:][-rank:], self.item)
        grads *= min(ROWS, self.whole.out_channels)
        read = _sectors((self.staged_rows, width)[-rank:], self.extents[-2:][-rank:], self.item)
        planes = self.strides[0] + (self.span - self.strides[0]) / self.walk
        channels = min(self.channel_tiles * COLUMNS, self.of.in_channels)
        if self.windows:
            read *= 1 + 1 / self.item
        moved = (grads * shared + read * planes * channels) * 32 / BYTES_A_CLOCK
        return moved if self.raw else moved * BY_THREADS

    @property
    def total_clocks(self) -> float:
        """Of all multiprocessors, by the one with most items, and what is added up in the end."""
        rounds = -(-self.items // self.blocks_a_part)
        late = max(0, 2 * self.span - self.slots)  # planes that are staged when the item before is done with
        first = late * self._staged
        return (rounds * (self.walk * self.clocks + first + STEP_CLOCKS) + self._finished) * self.sms

    @property
    def _finished(self) -> float:
        """Sums to memory, and read by another kernel."""
        return 2 * self.part_words * 4 / BYTES_A_CLOCK + 8000


def _sectors(box: tuple[int, ...], shape: tuple[int, ...], item: int) -> float:
    """Of a box of one channel, what lies outside left out."""
    return read_sectors([min(n, whole) for n, whole in zip(box, shape, strict=True)], shape, item)
