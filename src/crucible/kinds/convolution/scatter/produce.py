"""A warpgroup that copies inputs: two rows at each place of the inner dim, in whole sixteens of bytes. All warps share
the channels, as a warp issues its lanes' copies one by one, by nine instructions."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Index, Number, Smaller
from crucible.kinds.convolution.scatter.frame import Frame, Item
from crucible.schedule.convolution.warpgroup.scatter import CHANNELS, POSITIONS, TEAMS
from crucible.schedule.convolution.warpgroup.walks import WARPS


class Producing:
    """Its body while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index) -> None:
        self.frame, self.k, self.division = frame, k, frame.division
        self.lane, self.warp = lane, warp

    def produce(self) -> None:
        k = self.k
        with self.frame.items(k) as item, k.loop("row", *item.rows, Number(TEAMS), "int") as row:
            if self.division.inner is None:
                self._chunks(item, row, ZERO)
                return
            with k.loop("plane", *item.planes, type="int") as plane:
                self._chunks(item, row, plane)

    def _chunks(self, item: Item, row: Index, plane: Index) -> None:
        """Stage by stage of channels."""
        k, division = self.k, self.division
        channels = min(division.chunk * CHANNELS, division.of.in_channels)
        with self.frame.chunks(k) as chunk, k.fill(self.frame.slots):
            both = k.let("both", Smaller(Number(TEAMS), item.rows[1] - row), "int")
            first = self.lane * WARPS + self.warp % WARPS
            with k.send(self.frame.slots), k.loop("c", first, Number(channels), Number(WARPS * 32), "int") as c:
                channel = chunk * channels + c
                if division.is_joined:
                    width = both * division.axis(division.last).extent
                    self._stretch(self.frame.begins(item, channel, row, plane), c * division.pitch, width)
                else:
                    with k.loop("s", ZERO, both, type="int") as s:
                        begin = self.frame.begins(item, channel, row + s, plane)
                        self._stretch(begin, c * division.pitch + s * division.team_words, self._width(item))

    def _width(self, item: Item) -> Index:
        extent = Number(self.division.axis(self.division.last).extent)
        return extent if self.division.is_whole else Smaller(Number(POSITIONS), extent - item.column)

    def _stretch(self, begin: Index, to: Index, count: Index) -> None:
        begin = self.k.let("begin", begin)
        source = ir.Global(self.frame.source.tensor, begin)
        self.k.add(ir.Stretch(ir.InShared(self.frame.stage, (to,)), source, count))
