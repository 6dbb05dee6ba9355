"""Warpgroups that multiply in turn: 64 channels by the positions of a plane, then the chain, in registers."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Index, Number, Variable
from crucible.kinds.convolution.walks.frame import WORDS, Frame, Item
from crucible.kinds.convolution.walks.leave import Leaving
from crucible.kinds.convolution.walks.rows import ByRows
from crucible.kinds.convolution.walks.runs import InRuns
from crucible.schedule.convolution.exact import Pass
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.walks import CHANNELS, ROWS


class Consuming:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index, part: Index, first_channel: Index) -> None:
        self.frame, self.k, self.walks = frame, k, frame.walks
        self.lane, self.warp, self.part = lane, warp, part
        self.leaving: Leaving = (InRuns if self.walks.in_bulk else ByRows)(frame, k, lane, warp, first_channel)
        self.sums = ir.Fragment("sums", "float32", (Number(self.walks.columns_of_b // 2),))

    def consume(self) -> None:
        k = self.k
        self.leaving.begin()
        self._hold()
        with self.frame.items(k) as item:
            if self.walks.parts_of_item == 1:
                self._planes(item, is_alone=True)
            else:
                self.leaving.begin_item()
                self._planes(item)
                self.leaving.end_item(item)
        self.leaving.end()

    def _planes(self, item: Item, *, is_alone: bool = False) -> None:
        """Of an item. Where it is one plane, what is the item's is the warpgroup's whose turn that is."""
        k, frame = self.k, self.frame
        number = Variable("t", "int")
        planes = k.named("planes", item.planes)
        before, products, behind = list[ir.Node](), list[ir.Node](), list[ir.Node]()
        with k.apart(before):
            start = k.let(f"box_{frame.dims[0]}", item.starts[0] + number, "int") if len(frame.dims) == 3 else None
            placed = Item(item.number, item.image, (start, *item.starts[1:]), planes) if start else item
            self.leaving.ask(placed)
            k.add(ir.Declare((self.sums,)))
        with k.apart(products), k.products(self.sums):
            self._products()
        with k.apart(behind):
            if is_alone:
                self.leaving.begin_item()
            self.leaving.leave(placed, self.sums)
            if is_alone:
                self.leaving.end_item(item)
        k.add(ir.Slide(frame.ring, number, planes, tuple(before), tuple(products), tuple(behind)))

    def _hold(self) -> None:
        """Lower words of the last taps: what a lane has of the rows of an instruction."""
        k, walks, packed = self.k, self.walks, self.frame.packed
        self.held = ir.Fragment("held", "tf32", (Number(walks.lower_held), Number(WORDS)))
        if walks.lower_held:
            first = self.part * walks.packed_units + walks.weight_units + self.warp % 4 * CHANNELS + self.lane // 4
            own = ir.Pointer("own", packed, first * WORDS + self.lane % 4)
            k.add(ir.Declare((self.held,)), ir.Declare(own))
            with k.unrolled("tap", Number(walks.lower_held)) as tap, k.unrolled("i", Number(WORDS)) as i:
                at = ((tap * STEP_UNITS + i // 2) * ROWS + i % 2 * 8) * WORDS
                k.add(ir.Load(ir.Element(self.held, (tap, i)), ir.Global(own, at)))

    def _products(self) -> None:
        """All taps of all channels; of float32 that is kept the products of lower words first."""
        k, walks = self.k, self.walks
        passes = walks.word_passes
        if walks.steps == 1:
            self._taps(passes, ZERO, None)
            return
        for number, together in enumerate(filter(None, (passes[:-1], passes[-1:]))):
            variable = Variable("s", "int")
            body = list[ir.Node]()
            with k.apart(body):
                self._taps(together, variable, () if number else (Compare(">=", variable, ONE),))
            k.add(ir.For(variable, ZERO, Number(walks.steps), ONE, tuple(body), unrolled=False))

    def _taps(self, passes: tuple[Pass, ...], step: Index, adds: tuple[Compare, ...] | None) -> None:
        """Of a step of channels, pass by pass, and plane by plane of the input."""
        k, walks, frame = self.k, self.walks, self.frame
        taps = len(walks.of.products)
        weights = ir.Matrix("a", frame.weights, ROWS)
        k.add(ir.Describe(weights, step * (taps * STEP_UNITS * ROWS)))
        by_plane: dict[int, list[tuple[int, int]]] = {}
        for number, product in enumerate(walks.of.products):
            plane, at = walks.place(product)
            by_plane.setdefault(plane, []).append((number, at))
        planes = {plane: ir.Matrix(f"b_{plane}", frame.planes, walks.points) for plane in by_plane}
        for turn, words in enumerate(passes):
            for plane, placed in sorted(by_plane.items()):
                if turn == 0:
                    k.add(ir.Describe(planes[plane], step * (STEP_UNITS * walks.points), plane))
                for tap, at in placed:
                    of_held, columns = tap - (taps - walks.lower_held), at + words.of_input * walks.plane_units
                    rows: tuple[ir.Matrix, int] | ir.Element = ir.Element(self.held, (Number(of_held),))
                    if of_held < 0 or not words.of_weight:
                        rows = weights, tap * STEP_UNITS * ROWS + words.of_weight * walks.word_units
                    k.add(ir.Product(ir.Element(self.sums), rows, (planes[plane], columns), adds))
                    adds = ()
