"""Warpgroups that multiply: 64 rows each, split in registers, by the columns of a stage."""

from __future__ import annotations

from typing import TypeAlias

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Index, Number
from crucible.kinds.product.frame import Frame, Item
from crucible.schedule.product import PROMOTED, STEP, TILE

PRODUCTS, WORDS = Number(STEP // 8), Number(4)
"""Of the depth of a step; what a thread has of the rows of one."""
PAIRS = Number(STEP // 16)
"""Products of halves of the depth of a step."""
SUMS = Number(TILE // 2)
"""Of a thread."""

Terms: TypeAlias = tuple[tuple[ir.Fragment, ir.Shared], ...]


class Consuming:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index) -> None:
        self.frame, self.k, self.lane = frame, k, lane
        self.own_row = k.let("own_row", warp * 16 + lane // 4, "int")
        self.sums, self.totals = (ir.Fragment(name, "float32", (SUMS,)) for name in ("accumulators", "totals"))

    def consume(self) -> None:
        k, frame = self.k, self.frame
        k.add(ir.Declare((self.sums,), "sum"))
        with frame.items(k) as item:
            k.add(ir.Declare((self.totals,), "sum"))
            with k.loop("step", item.start, item.stop, type="int") as step:
                last = (Compare("==", step, item.stop - 1),)
                moved = ir.Promote(self.totals, self.sums, step - item.start, PROMOTED, last)
                with k.drain(frame.ring):
                    terms = self._mixed() if frame.division.is_mixed else self._alike()  # the smallest first
                    k.add(ir.Mma(self.sums, terms, moved.adds))
                k.add(moved)
            self._results(item)

    def _alike(self) -> Terms:
        """All of TF32: rows of the left operand as mma.sync has them, r and r + 8, k and k + 4."""
        k, frame = self.k, self.frame
        high, low = (ir.Fragment(name, "tf32", (PRODUCTS, WORDS)) for name in ("a_high", "a_low"))
        word = ir.Fragment("word", "word", (WORDS,))
        k.add(ir.Declare((high, low)))
        with k.unrolled("s", PRODUCTS) as s:
            k.add(ir.Declare((word,)))
            with k.unrolled("i", WORDS) as i:
                k.add(ir.Load(ir.Element(word, (i,)), ir.InShared(frame.a, self._word(s, i))))
            with k.unrolled("i", WORDS) as i:
                k.add(ir.Split(ir.Element(high, (s, i)), ir.Element(word, (i,)), "high", settles=True))
                k.add(ir.Split(ir.Element(low, (s, i)), ir.Element(word, (i,)), "low", settles=True))
        return (low, frame.b_high), (high, frame.b_low), (high, frame.b_high)

    def _mixed(self) -> Terms:
        """Those of lower words in bfloat16: a word of the depth is beside that half a step on, as in memory."""
        k, frame = self.k, self.frame
        high = ir.Fragment("a_high", "tf32", (PRODUCTS, WORDS))
        near, rest = (ir.Fragment(name, "halves", (PAIRS, WORDS)) for name in ("a_near", "a_rest"))
        words = ir.Fragment("words", "word", (Number(2), WORDS))
        k.add(ir.Declare((high, near, rest)))
        with k.unrolled("s", PAIRS) as s:
            k.add(ir.Declare((words,)))
            with k.unrolled("h", Number(2)) as h, k.unrolled("i", WORDS) as i:
                word, at = ir.Element(words, (h, i)), s + h * PAIRS
                k.add(ir.Load(word, ir.InShared(frame.a, self._word(at, i))))
                k.add(ir.Split(ir.Element(high, (at, i)), word, "high", settles=True))
            with k.unrolled("i", WORDS) as i:
                both = (ir.Element(words, (ZERO, i)), ir.Element(words, (ONE, i)))
                k.add(ir.SplitPairs(ir.Element(near, (s, i)), both, "high", settles=True))
                k.add(ir.SplitPairs(ir.Element(rest, (s, i)), both, "low", settles=True))
        return (rest, frame.b_near), (near, frame.b_rest), (high, frame.b_high)

    def _word(self, s: Index, i: Index) -> tuple[Index, Index]:
        """Where the i-th is of a thread for the s-th product."""
        row, depth = self.own_row + i % 2 * 8, s * 8 + i // 2 * 4 + self.lane % 4
        return (row, depth) if self.frame.left.is_deep else (depth, row)

    def _results(self, item: Item) -> None:
        """A thread has two rows, of each eight columns two."""
        k, frame = self.k, self.frame
        two = Number(2)
        with k.unrolled("r", two) as r, k.unrolled("j", Number(TILE // 8)) as j:
            row = k.let("row", item.row + self.own_row + r * 8, "int")
            column = k.let("column", item.column + j * 8 + self.lane % 4 * 2, "int")
            inside = (*frame.within(frame.left.lines, row, TILE), *frame.within(frame.right.lines, column, TILE))
            with k.when(inside, is_rest=True):
                pair = ir.Fragment("pair", "float32", (two,), True)
                k.add(ir.Declare((pair,)))
                for c in (0, 1):
                    one = ir.Element(self.totals, (j * 4 + r * 2 + c,))
                    k.add(ir.Convert(ir.Element(pair, (Number(c),)), one))
                to = ir.Global(frame.result, self._place(item, row, column))
                k.add(ir.Store(ir.Element(pair), to, plainly=True))

    def _place(self, item: Item, row: Index, column: Index) -> Index:
        frame = self.frame
        return item.part * frame.out_part + item.batch * frame.out_batch + row * frame.out_row + column
