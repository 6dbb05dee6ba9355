"""What all warpgroups of a convolution of several phases agree on: which part of the work is a block's."""

from __future__ import annotations

import itertools
from dataclasses import replace

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.fused import Convolution, is_of_row
from crucible.algebra.program import Operand, Reduction, Result
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Grid, Index, Number, Part, Place, Table
from crucible.kinds.convolution.vectors import Laid, laid
from crucible.kinds.convolution.walks.frame import WORDS, Frame
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.phases import PhaseWalks
from crucible.schedule.convolution.warpgroup.walks import ROWS, THREADS


class PhaseFrame(Frame):
    """One kernel while it is made. A part of the work is a tile of channels and a share of the phases, and as many
    blocks take it as it needs."""

    walks: PhaseWalks

    def __init__(self, conv: Convolution, walks: PhaseWalks, gpu: Gpu) -> None:
        super().__init__(_of_rows(conv), walks, gpu)
        self.begins = Table("begins", tuple(itertools.accumulate(walks.dealt, initial=0)), "blocks of each part")
        taps = walks.taps_of_shares
        self.first_taps = Table("first_taps", tuple(each.start for each in taps), "of each share of the phases")
        self.taps = Table("taps", tuple(map(len, taps)))
        self.share: Index = ZERO
        """Of the phases."""
        self.first_channel: Index = ZERO

    @property
    def blocks(self) -> int:
        return sum(self.walks.dealt)

    def _laid(self, tensor: Operand | Result) -> Laid:
        is_told, wide = is_of_row(tensor) if isinstance(tensor, Operand) else False, ("batch", "channel")
        return laid(tensor, self.conv.made_shape, self.dims, is_told=is_told, wide=wide)

    def _parts(self) -> tuple[Buffer, ...]:
        return tuple(self.scene.row_parts)

    def _ring(self) -> ir.Pipeline:
        """All of a plane is 0 where nothing is ever loaded: between rows, and outside of the tensor."""
        walks = self.walks
        return ir.Pipeline(
            "ring", (self.planes,), walks.slots, THREADS, walks.groups * THREADS, window=walks.span, teams=walks.groups,
            is_shared=True, slack=walks.points,
        )  # fmt: skip

    def begin(self, k: Builder) -> None:
        """Which part of the work is a block's."""
        walks, block = self.walks, Place("block", self.blocks)
        part: Index = ZERO
        first: Index = block
        blocks: Index = Grid(self.blocks)
        if len(walks.dealt) > 1:
            k.add(ir.Declare(self.begins))
            part = k.let("part", Part(self.begins), "int")
            first, blocks = block - self.begins[part], self.begins[part + 1] - self.begins[part]
        self.first_item, self.item_step = k.let("first_item", first, "int"), k.let("blocks", blocks, "int")
        self.share = k.named("share", part % walks.shares)
        tile = part // walks.shares
        self.first_channel = k.named("first_channel", tile * ROWS) if walks.channel_tiles > 1 else ZERO
        k.add(ir.Declare(self.weights))
        self._weights(k, tile if walks.channel_tiles > 1 else ZERO)
        k.add(ir.Declare(self.ring))

    def _weights(self, k: Builder, tile: Index) -> None:
        """Of a share: of each step of channels its taps."""
        walks, tap = self.walks, STEP_UNITS * ROWS
        packed = ir.Pointer("packed", self.packed, ZERO, is_of_units=True)
        k.add(ir.Declare(packed))
        if walks.channel_tiles > 1:
            packed = ir.Pointer("of_tile", packed, tile * (walks.packed_units * WORDS), is_of_units=True)
            k.add(ir.Declare(packed))
        units: Index = Number(walks.weight_units)
        if walks.shares > 1:
            k.add(ir.Declare(self.first_taps), ir.Declare(self.taps))
            own = k.let("own_units", self.taps[self.share] * tap, "int")
            units = own * walks.steps
        with k.loop("p", Place("thread", walks.threads), units, Number(walks.threads), "int") as p:
            at: Index = p
            if walks.shares > 1:
                at = p // own * (len(walks.of.products) * tap) + self.first_taps[self.share] * tap + p % own
            k.add(ir.Copy(ir.InShared(self.weights, (p, ZERO)), ir.Global(packed, at * WORDS)))


def _of_rows(conv: Convolution) -> Convolution:
    """With sums over batch and space as sums of rows: the same parts, which whoever adds them up takes as blocks'."""
    sums = tuple(Reduction(each.name, "sum", each.expr) for each in conv.results if each.sums)
    results = tuple(each for each in conv.results if not each.sums)
    return replace(conv, results=results, reductions=(*conv.reductions, *sums))
