"""How long a division of the gradient of a convolution's weight among warpgroups takes, as estimated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crucible.schedule import cost
from crucible.schedule.convolution.estimate import read_sectors
from crucible.schedule.convolution.warpgroup.walks import ROWS
from crucible.schedule.convolution.warpgroup.weight_shape import COLUMNS, TEAMS, WeightShape


@dataclass(frozen=True)
class WeightWalks(WeightShape):
    """A division and its times, in clocks of a multiprocessor."""

    @cached_property
    def clocks(self) -> float:
        """Estimate for a plane of positions: tensor cores, memory and the warps that stage go on beside each other."""
        multiplied = cost.weight_products(
            self.machine, instructions=self.depths * self.chunks, columns=self.columns, steps=self.steps, teams=TEAMS
        )
        beside = max(self._staged, self._brought) if self.has_bringer else self._staged + self._brought
        return max(multiplied, self.strides[0] * beside, self._moved, self._passed)

    @property
    def _units(self) -> int:
        """That a thread stores of a piece."""
        return self.piece_words // 4 * len(self.taps[2].numbers)

    @property
    def _staged(self) -> float:
        """Of a plane of input, by the warp with most pieces."""
        rounds = -(-self.pieces // (self.staging_warps * 32 * self.pieces_together))
        return cost.weight_plane(
            self.machine, rounds, self.pieces_together, loads=self.piece_loads * (2 if self.windows else 1),
            units=self._units, packed=self.item < 4, raw=self.raw > 0,
        )  # fmt: skip

    @property
    def _brought(self) -> float:
        """Likewise, by the warp that brings it."""
        return cost.weight_copies(self.machine, self.channel_tiles * COLUMNS) if self.raw else 0

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
        return cost.weight_wavefronts(self.machine, grads + staged + brought + columns)

    @property
    def _moved(self) -> float:
        """To and from memory."""
        rank = len(self.of.axes)
        width = (self.width - 1) * self.strides[2] + self.taps[2].reach + 1
        grads = _sectors((self.rows, self.width)[-rank:], self.outputs[-2:][-rank:], self.item)
        grads *= min(ROWS, self.whole.out_channels)
        read = _sectors((self.staged_rows, width)[-rank:], self.extents[-2:][-rank:], self.item)
        planes = self.strides[0] + (self.span - self.strides[0]) / self.walk
        channels = min(self.channel_tiles * COLUMNS, self.of.in_channels)
        if self.windows:
            read *= 1 + 1 / self.item
        return cost.weight_sectors(
            self.machine, grads, read * planes * channels, shared=self.parts > 1, raw=self.raw > 0
        )

    @property
    def total_clocks(self) -> float:
        """Of all multiprocessors, by the one with most items, and what is added up in the end."""
        rounds = -(-self.items // self.blocks_a_part)
        late = max(0, 2 * self.span - self.slots)  # planes that are staged when the item before is done with
        first = late * self._staged
        return cost.weight_items(self.machine, rounds, self.walk * self.clocks, first, self.part_words) * self.sms


def _sectors(box: tuple[int, ...], shape: tuple[int, ...], item: int) -> float:
    """Of a box of one channel, what lies outside left out."""
    return read_sectors([min(n, whole) for n, whole in zip(box, shape, strict=True)], shape, item)
