"""Results that leave run by run, 16 bytes a lane: the chain runs where products are, over what bulk copies bring."""

from __future__ import annotations

from crucible.algebra.program import contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Index, Larger, Number, Smaller, Variable
from crucible.kernel.places import ITEM_BYTES
from crucible.kinds.convolution.vectors import Laid, chained
from crucible.kinds.convolution.walks.frame import UNIT, WORDS, Frame, Item
from crucible.kinds.convolution.walks.leave import Leaving, Position
from crucible.schedule.convolution.rows import Rows
from crucible.schedule.convolution.warpgroup.walk_choice import brought

TOGETHER = 4
"""Rows, or some of short rows, that stand in the code one behind the other. Sixteen loads and then their stores took
6 % more of P90's forward."""


class InRuns(Leaving):
    """It while it is made. Sums of a channel stay in registers from the first plane to the last, those over an image's
    space from an item's first plane to its last."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index, first_channel: Index) -> None:
        super().__init__(frame, k, lane, warp, first_channel)
        self.brought = {each.name: frame.operands[each.name] for each in brought(frame.conv) or ()}
        self.result = next(iter(frame.results.values()), None)
        of_tile = [*frame.results.values(), *self.brought.values()]
        self.dtype = of_tile[0].tensor.dtype if of_tile else "float32"
        self.vector = UNIT // ITEM_BYTES[self.dtype]
        shape = (self.walks.tiles, self.warp_channels, self.walks.pitch // WORDS * self.vector)
        note = f"of this warp, for {self.warp_channels} channels"
        self.tile = ir.Shared("tile", self.dtype, tuple(map(Number, shape)), note, at_launch=True, per_warp=True)
        """What is brought, one behind the other; results take the place of the first."""
        self.has_tile = bool(of_tile)
        self.runs = Rows(self.walks, (contiguous(frame.conv.made_shape),), frame.dims, self.vector)
        self.totals = {name: self._totals(name) for name in self.sum_parts}
        self.row_totals = {name: self._totals(name) for name in self.row_parts}

    def _totals(self, name: str) -> ir.Fragment:
        return ir.Fragment(f"{name}_totals", "float32", (self.slabs,))

    @property
    def all_totals(self) -> dict[str, ir.Fragment]:
        return {**self.totals, **self.row_totals}

    def begin(self) -> None:
        k, frame = self.k, self.frame
        k.add(*([ir.Declare(self.tile)] if self.has_tile else []))
        self.channel = k.let("channel", self.own_channel + self.in_warp, "int")
        of_channel = {name: laid for name, laid in frame.operands.items() if name not in self.brought}
        self.values = {name: ir.Fragment(f"{name}_values", "float32", (self.slabs,)) for name in of_channel}
        last = Number(self.channels - 1)
        for name, laid in of_channel.items():
            k.add(ir.Declare((self.values[name],)))
            with k.unrolled("i", self.slabs) as i:
                at = Smaller(self.channel + i * 8, last) * laid.strides[1]
                k.add(ir.Load(ir.Element(self.values[name], (i,)), ir.Global(laid.tensor, at)))
        k.add(*(ir.Declare((each,), "sum") for each in self.totals.values()))

    def begin_item(self) -> None:
        self.k.add(*(ir.Declare((each,), "sum") for each in self.row_totals.values()))

    def ask(self, item: Item) -> None:
        """What the chain reads of a plane's outputs comes beside its products: a lane has a channel of a warp."""
        k, channels = self.k, self.channels
        super().ask(item)
        if not self.brought:
            return
        who, channel = [Compare("<", self.lane, Number(self.warp_channels))], self.own_channel + self.lane
        lanes: Index = Number(self.warp_channels)
        if channels % self.walks.part_channels:
            who.append(Compare("<", channel, Number(channels)))
            lanes = Larger(ZERO, Smaller(Number(self.warp_channels), Number(channels) - self.own_channel))
        copies = tuple(
            (ir.InShared(self.tile, (Number(number), self.lane, ZERO)),
             ir.Global(laid.tensor, self.place_of(item, laid, channel, item.starts[: self.runs.first])))
            for number, laid in enumerate(self.brought.values())
        )  # fmt: skip
        count = Number(self.runs.run) if self.left is None else self.left
        k.add(ir.Bring(self.frame.ring, copies, count, tuple(who), lanes))

    def leave(self, item: Item, sums: ir.Fragment) -> None:
        k = self.k
        k.add(*([ir.Brought(self.frame.ring)] if self.brought else []))
        with k.unrolled("i", self.slabs) as i, k.when(self.frame.channels_inside(self.channel + i * 8)):
            self._take(i)
            with k.unrolled("j", self.eights) as j:
                self.eight(item, sums, i, j)
            for name, totals in self.all_totals.items():
                k.add(ir.Accumulate("sum", ir.Element(totals, (i,)), ir.Element(self.of_plane[name])))
        if self.result:
            k.add(ir.Sync(of="warp"))
            with k.scope():
                self._stores(item, self.result)
        if self.has_tile:
            k.add(*([ir.Fence()] if self.brought else []), ir.Sync(of="warp"))

    def end_item(self, item: Item) -> None:
        for name, parts in self.row_parts.items():
            self._leaves(self.row_totals[name], parts, self.item_parts(item))

    def end(self) -> None:
        for name, parts in self.sum_parts.items():
            self._leaves(self.totals[name], parts, self.own_parts)

    def _leaves(self, totals: ir.Fragment, parts: ir.Tensor, own: Index) -> None:
        """Four lanes have each a part of that."""
        k, total = self.k, ir.Fragment("total", "float32")
        with k.unrolled("i", self.slabs) as i:
            k.add(ir.Declare((total,)), ir.Convert(ir.Element(total), ir.Element(totals, (i,))))
            k.add(ir.Reduce("sum", total, "team", (self.lanes,)))
            with k.when((Compare("==", self.lane % self.lanes.value, ZERO),)):
                k.add(ir.Store(ir.Element(total), ir.Global(parts, own + self.channel + i * 8)))

    # the chain

    def _take(self, i: Index) -> None:
        """What the chain reads of a channel, once: read where it is used nvcc 13.0 makes other code of it."""
        self.of_channel = {name: ir.Element(ir.Fragment(f"{name}_value", "float32")) for name in self.values}
        for name, values in self.values.items():
            self.k.add(ir.Convert(self.of_channel[name], ir.Element(values, (i,)), declares=True))
        self.of_plane = {name: ir.Fragment(f"{name}_total", "float32") for name in self.all_totals}
        self.k.add(*(ir.Declare((each,), "sum") for each in self.of_plane.values()))

    def neighbours(self, item: Item, sums: ir.Fragment, first: Index, place: Position) -> None:
        """The chain at so many places; what lies outside of the outputs reads zeros, and is not added up."""
        k, count = self.k, Number(self.together)
        inside = place.inside
        if self.brought or self.of_plane:
            inside = k.test("inside", (*inside, *self._ragged(item, place)))
        came = {
            name: ir.Fragment(f"{name}_pack", laid.tensor.dtype, (count,), True) for name, laid in self.brought.items()
        }
        for number, each in enumerate(came.values()):
            k.add(ir.Load(ir.Element(each), self._at(number, place), inside, declares=True))
        pack = ir.Fragment("pack", self.dtype, (count,), True)
        k.add(*([ir.Declare((pack,))] if self.result else []))
        with k.unrolled("k", count) as n:
            of_place = {name: ir.Element(each, (n,)) for name, each in came.items()}
            made = chained(k, self.frame.conv, ir.Element(sums, (first + n,)), self.of_channel, of_place)
            k.add(*(ir.Convert(ir.Element(pack, (n,)), made[name]) for name in self.frame.results))
            with k.when(inside if self.of_plane else ()):
                k.add(*(ir.Accumulate("sum", ir.Element(each), made[name]) for name, each in self.of_plane.items()))
        if self.result:
            with k.when(inside):
                k.add(ir.Store(ir.Element(pack), self._at(0, place)))

    def _at(self, number: int, place: Position) -> ir.InShared:
        """A place in the tile of that number."""
        return ir.InShared(self.tile, (Number(number), place.channel, place.row_in * self.walks.box[-1] + place.w_in))

    def _ragged(self, item: Item, place: Position) -> list[Compare]:
        """That a position of the box is an output, where boxes reach beyond them."""
        walks, found = self.walks, list[Compare]()
        for at, dim in zip((place.w_in, place.row_in), reversed(range(len(walks.box))), strict=False):
            outputs = walks.of.axes[dim].outputs
            if walks.boxes[dim] * walks.box[dim] > outputs:
                found.append(Compare("<", at, Number(outputs) - item.starts[dim]))
        return found[::-1]

    # runs

    def _stores(self, item: Item, laid: Laid) -> None:
        """A warp's rows of the tile, whole ones or several at a time."""
        k, runs, lane = self.k, self.runs, self.lane
        pieces = runs.run // self.vector
        least = max(min(pieces, 32), 32 // self.warp_channels)
        lanes = next(lanes for lanes in (2, 4, 8, 16, 32) if lanes >= least)
        rows, rounds = 32 // lanes, -(-pieces // lanes)
        to = ir.Pointer(
            "to", laid.tensor, self.place_of(item, laid, self.own_channel, item.starts[: runs.first]), is_of_units=True
        )
        k.add(ir.Declare(to))
        outer, channels = self.warp_channels // rows, self.channels
        is_ragged = channels % self.walks.part_channels > 0
        there = k.let("rows", Number(channels) - self.own_channel, "int") if is_ragged else ZERO
        r = Variable("r", "int")
        body = list[ir.Node]()
        with k.apart(body):
            row = r if rows == 1 else r + lane // lanes
            with k.unrolled("j", Number(rounds)) as j:
                piece = (lane if lanes == 32 else lane % lanes) + j * lanes
                tests: list[Compare] = []
                if self.left is not None:
                    tests.append(Compare("<", piece, self.left // self.vector))
                elif pieces % lanes:
                    tests.append(Compare("<", piece, Number(pieces)))
                tests += [Compare("<", row, there)] if is_ragged else []
                with k.when(tuple(tests)):
                    target = ir.Global(to, row * laid.strides[1] + piece * self.vector)
                    k.add(ir.Copy(target, ir.InShared(self.tile, (ZERO, row, piece * self.vector))))
        together = min(outer, TOGETHER)
        k.add(ir.For(r, ZERO, Number(self.warp_channels), Number(rows), tuple(body), outer == together, together))
