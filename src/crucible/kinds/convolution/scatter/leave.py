"""A row of sums that is finished, through the chain to memory: a thread takes four channels of an output, so that lanes
store neighbours."""

from __future__ import annotations

from crucible.algebra.convolution.fused import PRODUCT
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Compare, Index, Number, Place
from crucible.kinds.convolution.scatter.frame import Frame, Item, smaller
from crucible.kinds.convolution.vectors import Laid, chained, value
from crucible.schedule.convolution.warpgroup.scatter import CHANNELS

HALF, SIDE_BY_SIDE = 4, 64
"""Channels of a thread, and threads that have the same ones."""


class Leaving:
    """It while it is made."""

    def __init__(self, frame: Frame, k: Builder) -> None:
        self.frame, self.k, self.division = frame, k, frame.division
        self.thread = Place("thread", self.division.threads)

    def leave(self, item: Item, row: Index, plane: Index, row_of: ir.Pointer) -> None:
        """The row of outputs that one of inputs is the last of, if it is of the box."""
        k, division = self.k, self.division
        dim = division.outer
        to_row, begin = k.let("to_row", row - division.axis(dim).shifts[-1], "int"), item.starts[dim]
        if division.inner is not None:
            plane = k.let("to_plane", item.starts[division.inner] + plane, "int")
        outputs, size = division.axis(dim).outputs, division.size(dim)
        end = smaller(Number(outputs), begin + size) if outputs % size else begin + size
        with k.when((Compare(">=", to_row, begin), Compare("<", to_row, end))):
            half = k.let("w_half", self.thread // SIDE_BY_SIDE % 2, "int")
            with k.loop("w", self.thread % SIDE_BY_SIDE, self._count(item), Number(SIDE_BY_SIDE), "int") as w:
                self._output(item, to_row, plane, w, half, row_of)

    def _count(self, item: Item) -> Index:
        """Outputs of the box along the last dim."""
        size, outputs = self.division.box[-1], self.division.axis(self.division.last).outputs
        return smaller(Number(size), Number(outputs) - item.starts[-1]) if outputs % size else Number(size)

    def _output(self, item: Item, to_row: Index, to_plane: Index, w: Index, half: Index, row_of: ir.Pointer) -> None:
        """All of a thread's channels."""
        k, division, channels = self.k, self.division, self.division.of.out_channels
        to_column = k.let("to_column", item.starts[-1] + w, "int")
        behind = division.axis(division.last).shifts[-1]
        column = k.let("column", to_column - item.column + behind, "int")
        values = ir.Element(ir.Fragment("values", "float32", (Number(HALF),), True))
        at = column % 2 * division.half_words + column // 2 * CHANNELS + half * HALF
        k.add(ir.Load(values, ir.InShared(row_of, (at,)), declares=True))
        with k.unrolled("k", Number(HALF)) as n:
            c = k.let("c", self.frame.first_channel + half * HALF + n, "int")
            is_one = (Compare("<", c, Number(channels)),) if channels % CHANNELS else ()
            with k.when(is_one, is_rest=True, ends=True):
                self._chain(ir.Element(values.of, (n,)), (item.image, c, to_row, to_plane, to_column))

    def _chain(self, product: ir.Element, place: tuple[Index, ...]) -> None:
        k, frame = self.k, self.frame
        values = {name: value(f"{name}_value") for name in frame.operands}
        for name, each in frame.operands.items():
            k.add(ir.Load(values[name], ir.Global(each.tensor, self._at(each, place)), declares=True))
        own = value(PRODUCT)
        k.add(ir.Convert(own, product, declares=True))
        made = chained(k, frame.conv, own, values, {})
        for name, each in frame.results.items():
            k.add(ir.Store(made[name], ir.Global(each.tensor, self._at(each, place))))

    def _at(self, of: Laid, place: tuple[Index, ...]) -> Index:
        """Of an operand or a result."""
        division, (image, channel, row, plane, column) = self.division, place
        index = image * of.strides[0] + channel * of.strides[1] + row * of.strides[2 + division.outer]
        if division.inner is not None:
            index = index + plane * of.strides[2 + division.inner]
        return index + column * of.strides[-1]
