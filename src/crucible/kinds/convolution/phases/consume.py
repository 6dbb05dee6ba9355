"""Warpgroups that multiply: of each plane of input all phases of a share, each by the one whose turn it is, then the
chain, in registers. The phases of the last dim are made together, so that a thread has neighbouring outputs."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Index, Number, Variable
from crucible.kinds.convolution.phases.frame import PhaseFrame
from crucible.kinds.convolution.phases.leave import Leaving
from crucible.kinds.convolution.walks.frame import Item
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.walks import ROWS


class Consuming:
    """Their body while it is made."""

    def __init__(self, frame: PhaseFrame, k: Builder, lane: Index, warp: Index) -> None:
        self.frame, self.k, self.walks = frame, k, frame.walks
        self.leaving = Leaving(frame, k, lane, warp)
        shape = (Number(self.walks.last_phases), Number(self.walks.columns_of_b // 2))
        self.sums = ir.Fragment("sums", "float32", shape)

    def consume(self) -> None:
        k, frame = self.k, self.frame
        self.leaving.begin()
        with frame.items(k) as item:
            planes = k.named("planes", item.planes)
            self.leaving.begin_item(item)
            self._deal(item, planes)
            self.leaving.end_item(item)

    def _deal(self, item: Item, planes: Index) -> None:
        k, frame, walks = self.k, self.frame, self.walks
        number, own = Variable("t", "int"), Variable("own", "int")
        before, products, behind = list[ir.Node](), list[ir.Node](), list[ir.Node]()
        task: Index = own if walks.together > 1 else ZERO
        with k.apart(before):
            first, *starts = item.starts
            if len(frame.dims) == 3 and planes != ONE:
                first = k.let(f"box_{frame.dims[0]}", first + number, "int")
            phase = frame.share * walks.together + task
            phase = phase if isinstance(phase, Number | Variable) else k.let("phase", phase, "int")
            self.leaving.ask(Item(item.number, item.image, (first, *starts), planes), phase)
            k.add(ir.Declare((self.sums,)))
        with k.apart(products):
            self._products(task)
        with k.apart(behind):
            self.leaving.leave(self.sums)
        made = tuple(before), tuple(products), tuple(behind)
        k.add(ir.Deal(frame.ring, number, planes, own, walks.together, walks.rotated, *made))

    def _products(self, task: Index) -> None:
        """Of the phase whose turn it is. Each way begins a batch of its own."""
        k, together, ways = self.k, self.walks.together, list[ir.Body]()
        for share in range(self.walks.shares):
            of_share = list[ir.Node]()
            with k.apart(of_share):
                k.one_of(task, [self._of_phase(share * together + own) for own in range(together)])
            ways.append(tuple(of_share))
        k.one_of(self.frame.share, ways)

    def _of_phase(self, phase: int) -> ir.Body:
        """All of it in one go."""
        k, walks, made = self.k, self.walks, list[ir.Node]()
        with k.apart(made), k.products(self.sums):
            if walks.steps == 1:
                self._taps(phase, ZERO)
            else:
                with k.loop("s", ZERO, Number(walks.steps), type="int") as step:
                    self._taps(phase, step)
        return tuple(made)

    def _taps(self, phase: int, step: Index) -> None:
        """Of a step of channels, plane by plane of the input."""
        k, walks, frame = self.k, self.walks, self.frame
        taps = walks.taps_of_shares[phase // walks.together]
        weights = ir.Matrix("a", frame.weights, ROWS)
        k.add(ir.Describe(weights, step * (len(taps) * STEP_UNITS * ROWS)))
        adds = None if walks.steps == 1 else (Compare(">=", step, ONE),)
        placed = sorted((walks.place(each), number, each.phase) for number, each in walks.numbered[phase])
        planes, begun = dict[int, ir.Matrix](), set[int]()
        for (plane, at), number, of_phase in placed:
            if plane not in planes:
                planes[plane] = ir.Matrix(f"b_{plane}", frame.planes, walks.points)
                k.add(ir.Describe(planes[plane], step * (STEP_UNITS * walks.points), plane))
            last = of_phase % walks.last_phases
            rows, columns = (weights, (number - taps.start) * STEP_UNITS * ROWS), (planes[plane], at)
            k.add(ir.Product(ir.Element(self.sums, (Number(last),)), rows, columns, () if last in begun else adds))
            begun.add(last)
