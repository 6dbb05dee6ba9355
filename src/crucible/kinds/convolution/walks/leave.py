"""What becomes of a plane's products: each warp has channels of its own, and a tile. What `runs` and `rows` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Either, Index, Number, Place, Size, Smaller
from crucible.kinds.convolution.vectors import Laid
from crucible.kinds.convolution.walks.frame import Frame, Item
from crucible.kinds.indices import total
from crucible.schedule.convolution.rows import Rows
from crucible.schedule.convolution.warpgroup.walks import ROWS, SLAB

SLABS = Number(2)
"""Channels of a thread's products: one, and that + 8."""
LANES = Size("channel_lanes", 4, "that have products of a channel", counts=True)


@dataclass(frozen=True)
class Position:
    """Of a thread's products: the channel, counted from a warp's first, and where it is in the box."""

    channel: Index
    row_in: Index
    w_in: Index
    inside: Condition


class Leaving:
    """It while it is made; channels are laid along `runs`."""

    runs: Rows
    lanes = LANES

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index, first_channel: Index) -> None:
        self.frame, self.k, self.walks, self.lane = frame, k, frame.walks, lane
        self.channels = frame.conv.correlation.out_channels
        self.warp_channels = self.walks.warp_channels
        self.own_channel = first_channel + warp % 4 * self.warp_channels
        """The first of a warp."""
        self.copies, self.slabs = self.walks.copies, Number(self.walks.row_slabs)
        self.eights = Number(self.walks.columns_of_b // (8 * self.copies))
        """Of positions that a lane has of a channel."""
        lanes = WARP // (SLAB // self.copies)
        self.in_warp, self.copy = lane // lanes, lane // 4 % self.copies
        """The channel of a lane's first products, from there; which of its eights it has."""
        self.lanes = replace(self.lanes, value=lanes)
        team = Place("block", frame.blocks) // frame.scene.parts * self.walks.groups + warp // 4
        self.own_parts, self.team = team * self.walks.padded_channels, warp // 4
        """Where those of a warpgroup begin; which one of a block it is."""
        parts = {each.name: each for each in frame.part_tensors}
        self.sum_parts = {each.name: parts[f"{each.name}_parts"] for each in frame.scene.sums}
        self.row_parts = {each.name: parts[f"{each.name}_parts"] for each in frame.conv.reductions}
        """The tensors that hold parts of sums over all images, and of those over an image's space."""

    def begin(self) -> None:
        """What a thread knows of its channels."""
        raise NotImplementedError

    def begin_item(self) -> None:
        """Sums over an image's space begin."""
        raise NotImplementedError

    def end_item(self, item: Item) -> None:
        """Behind its last plane: each warpgroup has its own part of those too, zeros where it had none of several."""
        raise NotImplementedError

    def item_parts(self, item: Item) -> Index:
        """Where those of a warpgroup begin."""
        of_item = self.walks.parts_of_item
        part = item.number if of_item == 1 else item.number * of_item + self.team
        return part * (self.walks.channel_tiles * ROWS)

    def ask(self, item: Item) -> None:
        """What is on its way beside a plane's products."""
        self.left = self._left(item)

    def leave(self, item: Item, sums: ir.Fragment) -> None:
        """Of a plane."""
        raise NotImplementedError

    def end(self) -> None:
        """Behind the last plane: each warpgroup has its own part of a channel's sum."""
        raise NotImplementedError

    # to the tile

    @property
    def together(self) -> int:
        """Neighbours of a lane that go to the tile at once: one, where a row's end or an odd width may part them."""
        return 2 if self.walks.plane[1] % 2 == self.walks.box[-1] % 2 == 0 else 1

    def eight(self, item: Item, sums: ir.Fragment, i: Index, j: Index) -> None:
        """Of eight positions a thread has two neighbours, of each channel. Where two rows have the same it takes one's:
        of the first eight or of the second."""
        k, first = self.k, j * 4 * self.copies + i * 2
        if self.copies > 1:
            both, own, first = first, ir.Fragment("own_sums", "float32", (Number(2),)), ZERO
            k.add(ir.Declare((own,)))
            with k.unrolled("k", Number(2)) as n:
                of_first, of_second = ir.Element(sums, (both + n,)), ir.Element(sums, (both + 4 + n,))
                is_second = (Compare("==", self.copy, ONE),)
                k.add(ir.Convert(ir.Element(own, (n,)), of_second, guard=is_second, otherwise=of_first))
            sums = own
        if self.together == 2:
            self.neighbours(item, sums, first, self._place(i, j, ZERO))
            return
        with k.unrolled("k", Number(2)) as n:
            self.neighbours(item, sums, first + n, self._place(i, j, n))

    def neighbours(self, item: Item, sums: ir.Fragment, first: Index, place: Position) -> None:
        """Products at so many places."""
        raise NotImplementedError

    def _place(self, i: Index, j: Index, n: Index) -> Position:
        """And the tests that it is one of the box: those between two rows of outputs are not. Eight positions may begin
        in the row before: divided so, both are constants but for the lane's part."""
        k, walks = self.k, self.walks
        width, outputs = walks.plane[1], walks.box[-1]
        rows = walks.outputs_a_plane // outputs
        eights = j * (8 * self.copies)
        in_eights = self.lane % 4 * 2 if self.copies == 1 else self.copy * 8 + self.lane % 4 * 2
        column = k.let("column", eights % width + in_eights + n, "int")
        beyond = (Compare(">=", column, Number(width)),)
        row_in = k.let("row_in", eights // width + Either(beyond, ONE, ZERO), "int")
        w_in = k.let("w_in", column - Either(beyond, Number(width), ZERO), "int")
        inside = [Compare("<", w_in, Number(outputs))] if width > outputs else []
        # all rows and no more: that no eight reaches beyond them, the verifier sees where it divides the rows, or where
        # none of them can go on in a row behind the last
        is_whole = walks.columns_of_b == rows * width and width % (8 * self.copies) == 0
        last = (walks.columns_of_b - 8 * self.copies) // width  # the row that the last eight begin in
        is_within = walks.columns_of_b < rows * width and (rows == 1 or last + 1 < rows)
        inside += [] if is_whole or is_within else [Compare("<", row_in, Number(rows))]
        return Position(self.in_warp + i * 8, row_in, w_in, tuple(inside))

    # runs

    def _left(self, item: Item) -> Index | None:
        """Pieces of a run that are inside of the output, where not all always are."""
        runs, first = self.runs, self.runs.first
        size, outputs = runs.box[first], runs.outputs[first]
        if self.walks.boxes[first] * size <= outputs:
            return None
        inside = Smaller(Number(size), Number(outputs) - item.starts[first])
        return self.k.let("left", inside * runs.inner, "int")

    def place_of(self, item: Item, laid: Laid, channel: Index, outer: Sequence[Index]) -> Index:
        """Where a run begins, at places of the dims before its first."""
        strides, first = laid.strides, self.runs.first
        terms = [item.image * strides[0], channel * strides[1]]
        terms += [at * stride for at, stride in zip(outer, strides[2:], strict=False)]
        if self.walks.boxes[first] > 1:
            terms.append(item.starts[first] * strides[2 + first])
        return total(terms)
