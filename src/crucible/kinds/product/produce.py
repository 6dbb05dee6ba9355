"""Warpgroups that bring the operands: what is loaded in a step is stored in the next one, when it has come."""

from __future__ import annotations

from typing import Literal

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Index, Number, Place, Range
from crucible.kinds.product.frame import CONSUMERS, THREADS, VECTOR, Frame, Item, Side
from crucible.schedule.product import STEP, TILE

LOADS = Number(4)
"""Packs of each operand that a thread moves in a step."""


class Producing:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder) -> None:
        self.frame, self.k = frame, k
        self.thread = k.let("thread", Place("thread", THREADS) - CONSUMERS, "int")
        self.own_chunk, self.own_column = self._own_place()
        packs = (LOADS, Number(VECTOR))
        self.a, self.b = (ir.Fragment(name, "word", packs, True) for name in ("a_packs", "b_packs"))
        self.is_there = ir.Fragment("is_there", "bool")

    def _own_place(self) -> tuple[Index, Index]:
        """Where a thread's words of the right operand go. Loads are whole lines of 128 bytes, stores of eight lanes go
        to all banks: eight chunks of a column, or four chunks of two columns four apart."""
        thread = self.thread
        chunk, column = thread % 8, thread // 8
        if not self.frame.right.is_deep:
            chunk, column = thread % 4 + thread // 32 % 2 * 4, (thread // 4 % 8 + thread // 64 * 8) * 4
        return self.k.let("own_chunk", chunk, "int"), self.k.let("own_column", column, "int")

    def produce(self) -> None:
        k, frame = self.k, self.frame
        k.add(ir.Declare((self.a, self.b)), ir.Declare((self.is_there,), "sum"))
        stored = (Compare("!=", ir.Held(Range(0, 1), ir.Element(self.is_there)), ZERO),)
        with frame.items(k) as item, k.loop("step", item.start, item.stop, type="int") as step:
            more = tuple(ir.Fragment(f"next_{each.name}", "word", each.shape, True) for each in (self.a, self.b))
            k.add(ir.Declare(more))
            self._load(frame.left, item.row, item, step, more[0], is_turned=False)
            self._load(frame.right, item.column, item, step, more[1], is_turned=True)
            with k.when(stored):
                self._store()
            with k.unrolled("i", LOADS) as i:
                for into, new in zip((self.a, self.b), more, strict=True):
                    k.add(ir.Convert(ir.Element(into, (i,)), ir.Element(new, (i,))))
            k.add(ir.Value(ir.Element(self.is_there), ONE, declares=False))
        with k.when(stored):
            self._store()

    def _load(self, side: Side, first: Index, item: Item, step: Index, into: ir.Fragment, *, is_turned: bool) -> None:
        """Four neighbours along the depth of a row, or of rows; of the right operand then four of the depth, which
        a thread turns."""
        k, frame, thread = self.k, self.frame, self.thread
        with k.unrolled("i", LOADS) as i:
            if side.is_deep:
                line, at = first + (self.own_column if is_turned else thread // 8) + i * 32, thread % 8 * VECTOR
            elif is_turned:
                line, at = first + self.own_column, self.own_chunk * VECTOR + i
            else:
                line, at = first + thread % 32 * VECTOR, thread // 32 + i * 8
            row, depth = k.let("row", line, "int"), k.let("k", step * STEP + at, "int")
            guard = (*frame.within(side.lines, row, TILE), *frame.within(frame.depth, depth, STEP))
            place = item.batch * side.batch + row * side.line + depth * side.depth
            k.add(ir.Load(ir.Element(into, (i,)), ir.Global(side.tensor, place), guard))

    def _store(self) -> None:
        k, frame = self.k, self.frame
        with k.fill(frame.ring):
            with k.unrolled("i", LOADS) as i:
                k.add(ir.Store(ir.Element(self.a, (i,)), ir.InShared(frame.a, self._place_of_left(i))))
            with k.unrolled("i", LOADS) as i:
                if frame.right.is_deep:
                    self._split(ir.Element(self.b, (i,)), self.own_column + i * 32)
                else:
                    self._split(self._turned(i), self.own_column + i)

    def _place_of_left(self, i: Index) -> tuple[Index, Index]:
        if self.frame.left.is_deep:
            return self.thread // 8 + i * 32, self.thread % 8 * VECTOR
        return self.thread // 32 + i * 8, self.thread % 32 * VECTOR

    def _turned(self, word: Index) -> ir.Element:
        """Of four packs a word each: four of the depth of one column."""
        column = ir.Fragment("column", "word", (Number(VECTOR),), True)
        self.k.add(ir.Declare((column,)))
        for j in map(Number, range(VECTOR)):
            self.k.add(ir.Convert(ir.Element(column, (j,)), ir.Element(self.b, (j, word))))
        return ir.Element(column)

    def _split(self, words: ir.Element, column: Index) -> None:
        parts: tuple[tuple[Literal["high", "low"], ir.Shared], ...]
        parts = (("high", self.frame.b_high), ("low", self.frame.b_low))
        for part, tile in parts:
            into = ir.Element(ir.Fragment(part, "tf32", (Number(VECTOR),), True))
            self.k.add(ir.Split(into, words, part, declares=True))
            self.k.add(ir.Store(into, ir.InShared(tile, (self.own_chunk, column, ZERO))))
