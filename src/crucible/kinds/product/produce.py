"""Warpgroups that bring the operands: what is loaded in a step is stored in the next one, when it has come."""

from __future__ import annotations

from collections.abc import Callable

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Index, Number, Place, Range
from crucible.kinds.product.frame import CONSUMERS, THREADS, VECTOR, Frame, Item, Side
from crucible.kinds.product.right import ByFours, ByPairs
from crucible.schedule.product import AHEAD, STEP, TILE

LOADS = Number(4)
"""Packs of the left operand that a thread moves in a step."""
LINE = 32
"""Words of 128 bytes."""


class Producing:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder) -> None:
        self.frame, self.k = frame, k
        self.thread = k.let("thread", Place("thread", THREADS) - CONSUMERS, "int")
        self.right = (ByPairs if frame.division.is_mixed else ByFours)(frame, k, self.thread)
        self.a = ir.Fragment("a_packs", "word", (LOADS, Number(VECTOR)), True)
        self.is_there = ir.Fragment("is_there", "bool")

    def produce(self) -> None:
        k, frame, held = self.k, self.frame, (self.a, self.right.packs)
        k.add(ir.Declare(held), ir.Declare((self.is_there,), "sum"))
        stored = (Compare("!=", ir.Held(Range(0, 1), ir.Element(self.is_there)), ZERO),)
        with frame.items(k) as item, k.loop("step", item.start, item.stop, type="int") as step:
            if frame.division.asks_ahead:
                self._ask(item, step)
            more = tuple(ir.Fragment(f"next_{each.name}", "word", each.shape, True) for each in held)
            k.add(ir.Declare(more))
            self._load(frame.left, item.row, item, step, more[0], self._place_of_left)
            self._load(frame.right, item.column, item, step, more[1], self.right.place)
            with k.when(stored):
                self._store()
            self._keep(held, more)
            k.add(ir.Value(ir.Element(self.is_there), ONE, declares=False))
        with k.when(stored):
            self._store()

    def _ask(self, item: Item, step: Index) -> None:
        """A thread for a line of 128 bytes of the right operand."""
        right, line, later = self.frame.right, self.thread, step + AHEAD
        row, depth = item.column + line, later * STEP
        if not right.is_deep:
            row, depth = item.column + line % (TILE // LINE) * LINE, later * STEP + line // (TILE // LINE)
        place = item.batch * right.batch + row * right.line + depth * right.depth
        with self.k.when((Compare("<", line, Number(TILE * STEP // LINE)), Compare("<", later, item.stop))):
            self.k.add(ir.Prefetch(ir.Global(right.tensor, place), Number(LINE), by_line=True))

    def _keep(self, held: tuple[ir.Fragment, ...], more: tuple[ir.Fragment, ...]) -> None:
        pairs = list(zip(held, more, strict=True))
        together = [pairs] if len({each.sizes[0] for each in held}) == 1 else [[pair] for pair in pairs]
        for some in together:
            with self.k.unrolled("i", some[0][0].shape[0]) as i:
                for into, new in some:
                    self.k.add(ir.Convert(ir.Element(into, (i,)), ir.Element(new, (i,))))

    def _load(
        self, side: Side, first: Index, item: Item, step: Index, into: ir.Fragment,
        place: Callable[[Index], tuple[Index, Index]],
    ) -> None:  # fmt: skip
        """Packs of neighbours along the depth of a row, or of rows."""
        k, frame = self.k, self.frame
        with k.unrolled("i", into.shape[0]) as i:
            line, at = place(i)
            row, depth = k.let("row", first + line, "int"), k.let("k", step * STEP + at, "int")
            guard = (*frame.within(side.lines, row, TILE), *frame.within(frame.depth, depth, STEP))
            at_memory = item.batch * side.batch + row * side.line + depth * side.depth
            k.add(ir.Load(ir.Element(into, (i,)), ir.Global(side.tensor, at_memory), guard))

    def _place_of_left(self, i: Index) -> tuple[Index, Index]:
        """Row and depth of a pack's first word."""
        thread = self.thread
        if self.frame.left.is_deep:
            return thread // 8 + i * 32, thread % 8 * VECTOR
        return thread % 32 * VECTOR, thread // 32 + i * 8

    def _store(self) -> None:
        k, frame = self.k, self.frame
        with k.fill(frame.ring):
            with k.unrolled("i", LOADS) as i:
                row, depth = self._place_of_left(i)
                at = (row, depth) if frame.left.is_deep else (depth, row)
                k.add(ir.Store(ir.Element(self.a, (i,)), ir.InShared(frame.a, at)))
            self.right.store()
