"""What becomes of a warpgroup's products of several phases, in the registers in which they came to be.

A lane has two neighbouring positions of a channel with all their phases of the last dim: neighbouring outputs, which it
stores itself, four lanes 64 bytes in a row where outputs are float32 and the stride is 2. What the chain reads of other
tensors for these it loads itself too, all of a task before it waits for the planes: so it comes beside the products.
Reductions of a row are added up over an item's planes, and then over the four lanes that have the same channel.
"""

from __future__ import annotations

from collections.abc import Callable

from crucible.algebra.convolution.fused import is_of_row
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Smaller
from crucible.kinds.convolution.phases.frame import PhaseFrame
from crucible.kinds.convolution.phases.places import Pack, Packs
from crucible.kinds.convolution.staged import pack
from crucible.kinds.convolution.vectors import Laid, chained
from crucible.kinds.convolution.walks.frame import Item
from crucible.kinds.convolution.walks.leave import LANES, SLABS
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.warpgroup.walks import CHANNELS, ROWS


class Leaving:
    """It while it is made."""

    def __init__(self, frame: PhaseFrame, k: Builder, lane: Index, warp: Index) -> None:
        self.frame, self.k, self.walks = frame, k, frame.walks
        self.lane, self.warp = lane, warp
        rows = [each.name for each in frame.scene.operands if is_of_row(each)]
        self.values = {name: ir.Fragment(f"{name}_values", "float32", (SLABS,)) for name in rows}
        """Of operands that hold a number for a channel, or for that of an image."""
        self.ahead = {name: each for name, each in frame.operands.items() if name not in rows}
        """The others: of the output's size, or laid over it."""
        self.packs = Packs(frame, k, lane, (*frame.results.values(), *self.ahead.values()))
        reductions = frame.conv.reductions
        self.totals = {each.name: ir.Fragment(f"{each.name}_totals", "float32", (SLABS,)) for each in reductions}

    # around planes

    def begin(self) -> None:
        """What a thread knows of its channels, whatever the image."""
        first = self.frame.first_channel + self.warp % 4 * CHANNELS
        self.channel = self.k.let("channel", first + self.lane // 4, "int")
        if self.totals:
            self.team = self.k.let("team", self.warp // 4, "int")
        self._load(None)

    def begin_item(self, item: Item) -> None:
        """What it knows of them in an image; and where reductions begin."""
        self._load(item.image)
        for each in self.frame.conv.reductions:
            self.k.add(ir.Declare((self.totals[each.name],), each.kind))

    def _load(self, image: Index | None) -> None:
        k, last = self.k, Number(self.walks.of.out_channels - 1)
        for name, values in self.values.items():
            tensor, (of_image, of_channel, *_) = self.frame.operands[name].tensor, self.frame.operands[name].strides
            if (image is None) == (of_image.value == 0):
                k.add(ir.Declare((values,)))
                with k.unrolled("i", SLABS) as i:
                    at = Smaller(self.channel + i * 8, last) * of_channel
                    at = at if image is None else image * of_image + at
                    k.add(ir.Load(ir.Element(values, (i,)), ir.Global(tensor, at)))

    def end_item(self, item: Item) -> None:
        """A lane of four writes what its warpgroup has of a channel."""
        if not self.totals:
            return
        k, walks, total = self.k, self.walks, ir.Element(ir.Fragment("total", "float32"))
        team = (item.number * walks.shares + self.frame.share) * walks.groups + self.team
        place = team * (walks.channel_tiles * ROWS) + self.channel
        with k.unrolled("i", SLABS) as i:
            for each, parts in zip(self.frame.conv.reductions, self.frame.part_tensors, strict=True):
                of_lane = ir.Element(self.totals[each.name], (i,))
                k.add(ir.Declare((total.of,)), ir.Convert(total, of_lane))
                k.add(ir.Reduce("max" if each.kind == "max" else "sum", total.of, "team", (LANES,)))
                with k.when((Compare("==", self.lane % 4, ZERO),)):
                    k.add(ir.Store(total, ir.Global(parts, place + i * 8)))

    # a task

    def ask(self, item: Item, phase: Index) -> None:
        """What the chain reads of this task's outputs."""
        self.item, self.phase = item, phase
        if not self.ahead:
            return
        self._begin()
        self.came = {name: self._ahead(name, each) for name, each in self.ahead.items()}
        self.k.add(*(ir.Declare((each,), "sum") for each in self.came.values()))
        self._over(self.ahead, lambda _: None, self._ask)

    def _ahead(self, name: str, each: Laid) -> ir.Fragment:
        """Packs; of one number where the last dim shares it."""
        size = self.packs.vector if each.strides[-1].value else 1
        tiles = self.walks.columns_of_b // 8
        shape = (SLABS, Number(tiles), Number(self.packs.count), Number(size))
        return ir.Fragment(f"{name}_ahead", each.tensor.dtype, shape, packed=True)

    def _ask(self, place: Pack, inside: Condition) -> None:
        with self.k.when(inside):
            for name, came in self.came.items():
                self.k.add(ir.Load(ir.Element(came, place.number), self._at(name, self.ahead[name], place)))

    def leave(self, sums: ir.Fragment) -> None:
        if not self.ahead:
            self._begin()
        self.sums = sums
        self._over(self.frame.results, self._take, self._make)

    def _begin(self) -> None:
        """Where the plane's outputs begin, of the phase in all dims but the last."""
        phases = [*decoded(self.phase, self.walks.of.phases[:-1]), ZERO]
        every = zip(self.frame.dims, self.item.starts, self.walks.of.phases, phases, strict=True)
        self.corner = [self.k.named(name, start * factor + phase) for name, start, factor, phase in every]

    def _over(
        self, tensors: dict[str, Laid], of_channel: Callable[[Index], None], make: Callable[[Pack, Condition], None]
    ) -> None:
        """For each of a lane's channels, and there for all its packs of neighbouring outputs."""
        k = self.k
        with k.unrolled("i", SLABS) as i:
            of_channel(i)
            self.rows = {name: self._row(name, each, i) for name, each in tensors.items()}
            k.add(*map(ir.Declare, self.rows.values()))
            self.packs.over(i, self.channel + i * 8, self.corner, make)

    def _row(self, name: str, each: Laid, i: Index) -> ir.Pointer:
        """Where it has the plane's first output of a channel."""
        places = (self.item.image, self.channel + i * 8, *self.corner)
        at = total([place * stride for place, stride in zip(places, each.strides, strict=True)])
        return ir.Pointer(f"{name}_row", each.tensor, at)

    def _at(self, name: str, each: Laid, place: Pack) -> ir.Global:
        """A pack of it."""
        terms = [place.at * each.strides[-1]]
        if len(self.walks.box) > 1:
            terms.insert(0, place.row_in * (each.strides[-2] * self.walks.of.phases[-2]))
        return ir.Global(self.rows[name], total(terms))

    # the chain

    def _take(self, i: Index) -> None:
        """What it reads of a channel."""
        self.i = i
        self.of_channel = {name: ir.Element(ir.Fragment(f"{name}_value", "float32")) for name in self.values}
        for name, values in self.values.items():
            self.k.add(ir.Convert(self.of_channel[name], ir.Element(values, (i,)), declares=True))

    def _make(self, place: Pack, inside: Condition) -> None:
        """Neighbouring outputs: their chain, and what becomes of it where they are inside."""
        k, size = self.k, Number(self.packs.vector)
        products = pack("products", "float32", self.packs.vector)
        k.add(ir.Declare((products,)))
        with k.unrolled("k", size) as n:
            k.add(ir.Convert(ir.Element(products, (n,)), ir.Element(self.sums, self.packs.product(place, n))))
        of_channel = {**self.of_channel, **self._shared(place)}
        left = {name: pack(f"{name}_pack", each.tensor.dtype, size.value) for name, each in self.frame.results.items()}
        k.add(*(ir.Declare((each,)) for each in left.values()))
        rest = {name: came for name, came in self.came.items() if name not in of_channel} if self.ahead else {}
        with k.unrolled("k", size) as n:
            came = {name: ir.Element(each, (*place.number, n)) for name, each in rest.items()}
            made = chained(k, self.frame.conv, ir.Element(products, (n,)), of_channel, came)
            k.add(*(ir.Convert(ir.Element(each, (n,)), made[name]) for name, each in left.items()))
            with k.when(inside if self.totals else ()):
                for each in self.frame.conv.reductions:
                    k.add(ir.Accumulate(each.kind, ir.Element(self.totals[each.name], (self.i,)), made[each.name]))
        with k.when(inside if left else ()):
            for name, laid in self.frame.results.items():
                k.add(ir.Store(ir.Element(left[name]), self._at(name, laid, place)))

    def _shared(self, place: Pack) -> dict[str, ir.Element]:
        """Values that the last dim shares."""
        found: dict[str, ir.Element] = {}
        for name, each in self.ahead.items():
            if not each.strides[-1].value:
                found[name] = ir.Element(ir.Fragment(f"{name}_value", "float32"))
                came = ir.Element(self.came[name], (*place.number, ZERO))
                self.k.add(ir.Convert(found[name], came, declares=True))
        return found
