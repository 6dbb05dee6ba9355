"""Warpgroups that multiply in turn: 64 channels by the positions of a plane, then the chain, in registers."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Index, Number, Variable
from crucible.kinds.convolution.walks.frame import Frame, Item
from crucible.kinds.convolution.walks.leave import Leaving
from crucible.write.convolution.halo import STEP_UNITS
from crucible.write.convolution.warpgroup.lower import PASSES, Pass
from crucible.write.convolution.warpgroup.walks import ROWS


class Consuming:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index, first_channel: Index) -> None:
        self.frame, self.k, self.walks = frame, k, frame.walks
        self.leaving = Leaving(frame, k, lane, warp, first_channel)
        self.sums = ir.Fragment("sums", "float32", (Number(self.walks.columns_of_b // 2),))

    def consume(self) -> None:
        k, frame = self.k, self.frame
        self.leaving.begin()
        with frame.items(k) as item:
            number = Variable("t", "int")
            planes = k.named("planes", item.planes)
            before, products, behind = list[ir.Node](), list[ir.Node](), list[ir.Node]()
            with k.apart(before):
                start = k.let(f"box_{frame.dims[0]}", item.starts[0] + number, "int") if len(frame.dims) == 3 else None
                k.add(ir.Declare((self.sums,)))
            with k.apart(products), k.products(self.sums):
                self._products()
            placed = Item(item.image, (start, *item.starts[1:]), planes) if start else item
            with k.apart(behind):
                self.leaving.leave(placed, self.sums)
            k.add(ir.Slide(frame.ring, number, planes, tuple(before), tuple(products), tuple(behind)))

    def _products(self) -> None:
        """All taps of all channels; of float32 that is kept the products of lower words first."""
        k, walks = self.k, self.walks
        passes = PASSES if walks.exact else PASSES[-1:]
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
        for turn, (of_weight, of_plane) in enumerate(passes):
            for plane, placed in sorted(by_plane.items()):
                if turn == 0:
                    k.add(ir.Describe(planes[plane], step * (STEP_UNITS * walks.points), plane))
                for tap, at in placed:
                    rows = tap * STEP_UNITS * ROWS + of_weight * walks.word_units
                    columns = at + of_plane * walks.plane_units
                    k.add(ir.Product(self.sums, (weights, rows), (planes[plane], columns), adds))
                    adds = ()
