"""Warpgroups that multiply in turn: of a plane of windows one element after another, and what is left of them stays in
registers."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Index, Number, Variable
from crucible.kinds.convolution.pooled.frame import PooledFrame
from crucible.kinds.convolution.pooled.leave import Leaving
from crucible.kinds.convolution.pooled.order import Ordering
from crucible.kinds.convolution.walks.frame import Item
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.pooled import ENTRY
from crucible.schedule.convolution.warpgroup.walks import ROWS


class Consuming:
    """Their body while it is made."""

    def __init__(self, frame: PooledFrame, k: Builder, leaving: Leaving, ordering: Ordering) -> None:
        self.frame, self.k, self.walks = frame, k, frame.walks
        self.leaving, self.ordering = leaving, ordering
        self.sums = ir.Fragment("sums", "float32", (Number(self.walks.columns_of_b // 2),))

    def consume(self) -> None:
        k, frame = self.k, self.frame
        self.ordering.store()
        self.leaving.begin()
        k.add(ir.Provided(frame.ring))
        with frame.items(k) as item:
            planes = k.named("planes", item.planes)
            self.leaving.begin_item(item.image)
            self._slide(item, planes)

    def _slide(self, item: Item, planes: Index) -> None:
        """A task is a pass, in which one or two elements of each window come."""
        k, frame, windows = self.k, self.frame, self.leaving.windows
        number, own = Variable("t", "int"), Variable("own", "int")
        begin, products, behind, end = (list[ir.Node]() for _ in range(4))
        with k.apart(begin):
            starts = item.starts
            if len(frame.dims) == 3:
                starts = (k.let(f"box_{frame.dims[0]}", starts[0] + number, "int"), *starts[1:])
            windows.begin()
        with k.apart(products):
            k.one_of(own, [self._of_pass(taps) for taps in self.walks.multiplied])
        with k.apart(behind):
            windows.take(self.sums, own)
        with k.apart(end):
            self.leaving.leave(item.image, starts)
        k.add(ir.Slide(
            frame.ring, number, planes, (ir.Declare((self.sums,)),), tuple(products), tuple(behind), own,
            self.walks.passes, tuple(begin), tuple(end),
        ))  # fmt: skip

    def _of_pass(self, taps: tuple[tuple[int, int, int], ...]) -> ir.Body:
        """Each in one go: where they begin outside of branches, nvcc makes them wait for each other."""
        k, walks, made = self.k, self.walks, list[ir.Node]()
        with k.apart(made), k.products(self.sums):
            if walks.steps == 1:
                self._taps(taps, ZERO)
            else:
                with k.loop("s", ZERO, Number(walks.steps), type="int") as step:
                    self._taps(taps, step)
        return tuple(made)

    def _taps(self, taps: tuple[tuple[int, int, int], ...], step: Index) -> None:
        """Of a step of channels, plane by plane of the input."""
        k, walks, frame = self.k, self.walks, self.frame
        weights = ir.Matrix("a", frame.weights, ROWS)
        k.add(ir.Describe(weights, step * (walks.entries * ENTRY)))
        planes = {
            plane: ir.Matrix(f"b_{plane}", frame.planes, walks.points) for plane in sorted({each[0] for each in taps})
        }
        for plane, matrix in planes.items():
            k.add(ir.Describe(matrix, step * (STEP_UNITS * walks.points), plane))
        adds: Condition | None = None if walks.steps == 1 else (Compare(">=", step, ONE),)
        for plane, at, entry in taps:
            k.add(ir.Product(ir.Element(self.sums), (weights, entry * ENTRY), (planes[plane], at), adds))
            adds = ()
