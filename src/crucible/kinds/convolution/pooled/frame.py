"""What all warpgroups of a convolution with a pool over its phases agree on."""

from __future__ import annotations

from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution, is_of_row
from crucible.algebra.convolution.running import Running
from crucible.algebra.program import Operand, Result
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Index, Number, Place, Size, Smaller, Variable
from crucible.kinds.convolution.staged import Staged
from crucible.kinds.convolution.vectors import Laid, laid
from crucible.kinds.convolution.walks.frame import Frame
from crucible.kinds.convolution.weight import Weight
from crucible.schedule.convolution.warpgroup.pooled import PooledWalks
from crucible.schedule.convolution.warpgroup.walks import THREADS

SHARES = 2
"""Of the warps that stage, each with planes of its own: so loads of one are on their way while another is written."""


class PooledFrame(Frame):
    """One kernel while it is made. A block puts its tile of the weight in order itself."""

    walks: PooledWalks

    def __init__(self, conv: Convolution, walks: PooledWalks, gpu: Gpu) -> None:
        super().__init__(conv, walks, gpu)
        assert conv.pool is not None
        self.running = Running(conv, conv.pool)
        weight = Weight(conv.correlation, conv.weight.name, conv.source.dtype, "read")
        self.packed = weight.tensor
        self.weight_strides = tuple(replace(each, counts=True) for each in weight.strides)
        """Of groups, made and read channels."""
        self.first_channel: Index = ZERO

    def _planes(self) -> ir.Shared:
        """Of sixteens of bytes by their number, where those of all shifts are a distance apart that is known."""
        shape = Number(self.walks.plane_units), Number(self.unit)
        return ir.Shared("planes", self.dtype, shape, "planes of input, once for each shift of the last dim")

    def begin(self, k: Builder) -> None:
        """Which tile of channels is a block's, and where its weights are to be."""
        parts, block = self.scene.parts, Place("block", self.blocks)
        part = k.named("part", block % parts)
        if parts > 1:  # of an int nvcc 13.0 makes other code than of what is unsigned
            self.first_item = k.let("block", block, "int") // parts
        self.first_channel = k.named("first_channel", part * self.walks.channels)
        k.add(ir.Declare(self.weights))

    @property
    def sizes(self) -> tuple[Size, ...]:
        return (*self.weight_strides, *super().sizes)

    @property
    def of_rows(self) -> list[str]:
        """Operands that hold a number for a channel, or for that of an image."""
        return [each.name for each in self.scene.operands if is_of_row(each)]

    def of_row(self, name: str, channel: Index, image: Index = ZERO) -> ir.Global:
        """Of one of them the number of a channel, or of the last one where that is none."""
        each, last = self.operands[name], Number(self.conv.correlation.out_channels - 1)
        of_image, of_channel, *_ = each.strides
        return ir.Global(each.tensor, image * of_image + Smaller(channel, last) * of_channel)

    def word(
        self, k: Builder, values: ir.Fragment, at: tuple[Index, ...], signs: ir.Element | None = None
    ) -> ir.Element:
        """Sixteen bytes of channels, of as many elements, as tensor cores multiply them; with signs turned round where
        bits say so."""
        staged = Staged(k, self.conv.source.dtype, self.conv.math, None)
        word = ir.Fragment("word", staged.kept, (Number(4),), True)
        k.add(ir.Declare((word,)))
        for number in range(4):
            into = ir.Element(word, (Number(number),))
            part = ir.Element(ir.Fragment("part", staged.kept)) if signs else into
            each = range(number * staged.of_word, (number + 1) * staged.of_word)
            staged.put(part, [ir.Element(values, (*at, Number(e))) for e in each], declares=signs is not None)
            k.add(*([ir.Flip(into, part, signs)] if signs else []))
        return ir.Element(word)

    def _laid(self, tensor: Operand | Result) -> Laid:
        return laid(tensor, self.conv.made_shape, self.dims, is_told=isinstance(tensor, Operand) and is_of_row(tensor))

    def _ring(self) -> ir.Pipeline:
        """What is never loaded is 0 once and for all: the ends of rows, of each copy others."""
        walks, row, copy = self.walks, Variable("p", "int"), Variable("copy", "int")
        end = walks.first_column + walks.staged_plane[1]
        first: Index = Number(walks.first_column) - copy if walks.first_column else ZERO
        stored: Index = Number(walks.row_pitch)
        if min(walks.box[-1], end - walks.copies + 1) < walks.row_pitch:
            stored = Smaller(Number(walks.box[-1]), Number(end) - copy)
        return ir.Pipeline(
            "ring", (self.planes,), walks.slots, THREADS // SHARES, walks.groups * THREADS, fillers=SHARES,
            window=walks.span, teams=walks.groups, provides=True,
            margins=ir.Margins(row, copy, row // walks.plane[0] % walks.copies, walks.row_pitch, first, stored),
        )  # fmt: skip
