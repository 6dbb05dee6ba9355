"""A warpgroup that stages planes of input once for each shift of the last dim, in two halves: each brings every other
plane, so that loads of one are on their way while another is written."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number
from crucible.kinds.convolution.pooled.frame import SHARES, PooledFrame
from crucible.kinds.convolution.walks.frame import Item
from crucible.kinds.convolution.walks.produce import Producing
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.walks import MOST_UNITS, WARPS

WARPS_A_SHARE = WARPS // SHARES


class Staging(Producing):
    """Its body while it is made. A warp has every other unit of channels of all positions."""

    frame: PooledFrame
    lanes = 32

    def __init__(self, frame: PooledFrame, k: Builder, lane: Index, warp: Index) -> None:
        self.lane, self.warp, self.pooled = lane, warp, frame.walks
        super().__init__(frame, k)

    def _thread(self) -> Index:
        return self.lane

    def _units(self) -> tuple[Number, int]:
        units = self.walks.steps * STEP_UNITS // WARPS_A_SHARE
        return Number(units), MOST_UNITS * 4 // (units * self.walks.unit)

    def _fill(self, item: Item, t: Index, origin: ir.Pointer) -> None:
        """A stage, in rounds of which all lanes know the number."""
        k, rounds = self.k, -(-self.staged // self.lanes)
        with k.fill(self.frame.ring):
            if self.is_all:
                self._stage(item, t, origin, ZERO)
            else:
                with k.loop("first", ZERO, Number(rounds), Number(self.together), "int") as first:
                    self._stage(item, t, origin, first)

    def _stage(self, item: Item, t: Index, origin: ir.Pointer, first: Index) -> None:
        """A lane's positions: loaded as they are, since were they rounded at once, some loads would wait for those of
        others."""
        k, rounds, unit = self.k, Number(self.together), Number(self.walks.unit)
        values = ir.Fragment("values", self.frame.conv.source.dtype, (rounds, self.units, unit))
        plane = self._plane(item, t)
        k.add(ir.Declare((values,)))
        with k.unrolled("k", rounds) as round_:
            read = self._reads(item, plane, origin, self._position(first + round_))
            with k.unrolled("j", self.units) as j:
                u = self._unit_of(j)
                with k.unrolled("e", unit) as e:
                    k.add(ir.Load(ir.Element(values, (round_, j, e)), *read(u, e)))
        k.add(ir.Vacant(self.frame.ring))
        with k.unrolled("k", rounds) as round_:
            p, number = self._position(first + round_), first + round_
            more = self.frame.below(number, -(-self.staged // self.lanes), self.together)
            with k.when((*more, *self._is_there(p))), k.unrolled("j", self.units) as j:
                u = self._unit_of(j)
                column, to = self._place_of(u, p)
                k.add(ir.Declare(to))
                self._copies(self.frame.word(k, values, (round_, j)), column, to)

    def _position(self, round_: Index) -> Index:
        return self.k.let("p", self.lane + round_ * self.lanes, "int")

    def _unit_of(self, j: Index) -> Index:
        return self.k.let("u", j * WARPS_A_SHARE + self.warp % WARPS_A_SHARE, "int")

    def _inside(self, at: Index, extent: int) -> Condition:
        return (Compare("in", at, Number(extent)),)

    def _place_of(self, u: Index, p: Index) -> tuple[Index, ir.Pointer]:
        """A position's column, and where it is in its stage."""
        walks, columns = self.walks, self.walks.staged_plane[1]
        column = self.k.let("column", p % columns + walks.first_column, "int")
        at = u * walks.points + p // columns * walks.row_pitch + column
        return column, ir.Pointer("to", self.frame.planes, at, is_of_units=True)

    def _copies(self, unit: ir.Element, column: Index, to: ir.Pointer) -> None:
        """To its place of each copy, each a position further on than the one before."""
        k, walks, end = self.k, self.pooled, self.walks.first_column + self.walks.staged_plane[1]
        for copy in range(walks.copies):
            tests = [Compare(">=", column, Number(copy))] if copy > walks.first_column else []
            tests += [Compare("<", column, Number(copy + walks.box[-1]))] if end > copy + walks.box[-1] else []
            with k.when(tuple(tests)):
                k.add(ir.Store(unit, ir.InShared(to, (Number(copy * (walks.copy_units - 1)), ZERO))))
