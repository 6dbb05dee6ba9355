"""Results that leave by the rows of the output, however it lies: products go to the tile of a warp, and the chain runs
over its rows in the order of memory."""

from __future__ import annotations

from dataclasses import replace

from crucible.algebra.convolution.fused import is_of_row
from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Index, Number
from crucible.kinds.convolution.sharing import Sharing
from crucible.kinds.convolution.staged import pack
from crucible.kinds.convolution.vectors import Vectors, Where, value
from crucible.kinds.convolution.walks.frame import Frame, Item
from crucible.kinds.convolution.walks.leave import Leaving, Position
from crucible.kinds.indices import decoded
from crucible.schedule.convolution.rows import MOST, Rows


class ByRows(Leaving):
    """It while it is made. A warp adds sums up in shared memory of its own."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index, first_channel: Index) -> None:
        super().__init__(frame, k, lane, warp, first_channel)
        each = [frame.operands[each.name] for each in frame.scene.operands if not is_of_row(each)]
        laid = [*frame.results.values(), *each]
        strides = dict.fromkeys(tuple(each.value for each in one.strides) for one in laid)
        self.runs = Rows(self.walks, tuple(strides), frame.dims, MOST)
        self.sharing = Sharing(frame.scene, self.runs, self.warp_channels, WARP)
        self.vectors = Vectors(k, frame.scene, frame.operands, frame.results, self.sharing)
        self.lanes = replace(self.lanes, value=self.sharing.lanes)
        self.tile = self._own(
            "tile", (self.warp_channels, self.walks.pitch), f"of this warp, for {self.warp_channels} channels"
        )
        self.sums = [*self.sum_parts, *self.row_parts]
        self.totals = self._own("totals", (len(self.sums), self.warp_channels), "of this warp's channels")

    @staticmethod
    def _own(name: str, shape: tuple[int, ...], note: str) -> ir.Shared:
        return ir.Shared(name, "float32", tuple(map(Number, shape)), note, at_launch=True, per_warp=True)

    def begin(self) -> None:
        self.k.add(ir.Declare(self.tile))
        if self.sums:
            self.k.add(ir.Declare(self.totals))
            self._begins(list(self.sum_parts))

    def begin_item(self) -> None:
        self._begins(list(self.row_parts))

    def _begins(self, names: list[str]) -> None:
        if not names:
            return
        k, none = self.k, value("none")
        k.add(ir.Declare((none.of,), "sum"))
        with k.when((Compare("<", self.lane, Number(self.warp_channels)),)):
            k.add(*(ir.Store(none, self._kept(name)) for name in names))

    def _kept(self, name: str) -> ir.InShared:
        """What a warp has added up of a lane's channel."""
        return ir.InShared(self.totals, (Number(self.sums.index(name)), self.lane))

    def leave(self, item: Item, sums: ir.Fragment) -> None:
        k = self.k
        with k.unrolled("i", self.slabs) as i, k.unrolled("j", self.eights) as j:
            self.eight(item, sums, i, j)
        k.add(ir.Sync(of="warp"))
        self._rows(item)
        k.add(ir.Sync(of="warp"))

    def end_item(self, item: Item) -> None:
        for name, parts in self.row_parts.items():
            self._leaves(name, parts, self.item_parts(item))

    def end(self) -> None:
        for name, parts in self.sum_parts.items():
            self._leaves(name, parts, self.own_parts)

    def _leaves(self, name: str, parts: ir.Tensor, own: Index) -> None:
        total = value("total")
        with self.k.when((Compare("<", self.lane, Number(self.warp_channels)),)):
            self.k.add(ir.Load(total, self._kept(name), declares=True))
            self.k.add(ir.Store(total, ir.Global(parts, own + self.own_channel + self.lane)))

    def neighbours(self, item: Item, sums: ir.Fragment, first: Index, place: Position) -> None:
        k, count = self.k, Number(self.together)
        pack = ir.Fragment("products", "float32", (count,), True)
        k.add(ir.Declare((pack,)))
        with k.unrolled("k", count) as n:
            k.add(ir.Convert(ir.Element(pack, (n,)), ir.Element(sums, (first + n,))))
        with k.when(place.inside):
            at = place.row_in * self.walks.box[-1] + place.w_in
            k.add(ir.Store(ir.Element(pack), ir.InShared(self.tile, (place.channel, at))))

    # rows of the tile

    def _rows(self, item: Item) -> None:
        """Some lanes take a row."""
        k, lanes = self.k, self.sharing.lanes
        own, rows = (self.lane if lanes == WARP else self.lane % lanes), WARP // lanes
        first = ZERO if rows == 1 else self.lane // lanes
        with k.loop("r", first, Number(self.warp_channels), Number(rows), "int") as row:
            channel = k.let("c", self.own_channel + row, "int")
            with k.when(self.frame.channels_inside(channel), is_rest=True):
                self._row(item, row, channel, own)

    def _row(self, item: Item, row: Index, channel: Index, own: Index) -> None:
        k = self.k
        self.vectors.begin(item.image, channel)
        of_plane = {name: value(f"{name}_total") for name in self.sums}
        k.add(*(ir.Declare((each.of,), "sum") for each in of_plane.values()))
        added = {name: ("sum", each) for name, each in of_plane.items()}
        self.vectors.leave(own, lambda v: self._spot(item, channel, v), lambda v: self._products(row, v), added)
        for number, total in enumerate(of_plane.values()):
            k.add(ir.Reduce("sum", total.of, "team", (self.lanes,)))
            with k.when((Compare("==", own, ZERO),)):
                kept, before = ir.InShared(self.totals, (Number(number), row)), value("before")
                k.add(ir.Load(before, kept, declares=True))
                k.add(ir.Accumulate("sum", total, before), ir.Store(total, kept))

    def _products(self, row: Index, v: Index) -> tuple[ir.Fragment, None]:
        products = pack("products", "float32", self.runs.vector)
        place = ir.InShared(self.tile, (row, v * self.runs.vector))
        self.k.add(ir.Load(ir.Element(products), place, declares=True))
        return products, None

    def _spot(self, item: Item, channel: Index, v: Index) -> tuple[Where, list[Compare]]:
        """A vector's place in a tensor, and the tests that it is inside."""
        k, runs, names = self.k, self.runs, self.frame.dims
        steps = runs.run // runs.vector
        piece, run = (v, ZERO) if runs.runs == 1 else (v % steps, v // steps)
        outer = [start + at for start, at in zip(item.starts, decoded(run, runs.box[: runs.first]), strict=False)]
        outer = outer if runs.runs == 1 else [k.named(name, at) for name, at in zip(names, outer, strict=False)]
        tests = [
            Compare("<", at, Number(runs.outputs[dim]))
            for dim, at in enumerate(outer)
            if self.walks.boxes[dim] * runs.box[dim] > runs.outputs[dim]
        ]
        tests += [] if self.left is None else [Compare("<", piece, self.left // runs.vector)]
        i = piece * runs.vector
        return lambda laid: self.place_of(item, laid, channel, outer) + i * laid.strides[-1], tests
