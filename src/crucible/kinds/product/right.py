"""What a thread that stages has of the right operand in a step: which packs it loads, and how it stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Index, Number
from crucible.kinds.product.frame import CHUNKS, VECTOR, Frame

Part = Literal["high", "low"]
FOUR = Number(VECTOR)


class ByFours:
    """Four chunks, each four of the depth of a column. Loads are whole lines of 128 bytes, stores of eight lanes go to
    all banks: eight chunks of a column, or four chunks of two columns four apart."""

    def __init__(self, frame: Frame, k: Builder, thread: Index) -> None:
        self.frame, self.k = frame, k
        chunk, column = thread % 8, thread // 8
        if not frame.right.is_deep:
            chunk, column = thread % 4 + thread // 32 % 2 * 4, (thread // 4 % 8 + thread // 64 * 8) * 4
        self.own_chunk, self.own_column = k.let("own_chunk", chunk, "int"), k.let("own_column", column, "int")
        self.packs = ir.Fragment("b_packs", "word", (FOUR, FOUR), True)

    def place(self, i: Index) -> tuple[Index, Index]:
        """Column and depth of a pack's first word."""
        if self.frame.right.is_deep:
            return self.own_column + i * 32, self.own_chunk * VECTOR
        return self.own_column, self.own_chunk * VECTOR + i

    def store(self) -> None:
        with self.k.unrolled("i", FOUR) as i:
            if self.frame.right.is_deep:
                self._split(ir.Element(self.packs, (i,)), self.own_column + i * 32)
            else:
                self._split(turned(self.k, self.packs, range(VECTOR), i, "column"), self.own_column + i)

    def _split(self, words: ir.Element, column: Index) -> None:
        parts: tuple[tuple[Part, ir.Shared], ...] = (("high", self.frame.b_high), ("low", self.frame.b_low))
        for part, tile in parts:
            put(self.k, words, part, tile, self.own_chunk, column)


class ByPairs:
    """Chunks half a step apart, two of each of two columns, whose words are neighbours in bfloat16. Stores of eight
    lanes go to all banks: four chunks of two columns four apart, or two of four pairs of columns."""

    def __init__(self, frame: Frame, k: Builder, thread: Index) -> None:
        self.frame, self.k = frame, k
        chunk, column = thread % 4, thread // 8 % 4 + thread // 4 % 2 * 4 + thread // 32 * 8
        if not frame.right.is_deep:
            chunk = thread // 4 % 2 + thread // 32 % 2 * 2
            column = (thread % 4 + thread // 8 % 4 * 4 + thread // 64 * 16) * 2
        self.own_chunk, self.own_column = k.let("own_chunk", chunk, "int"), k.let("own_column", column, "int")
        shape = (4, VECTOR) if frame.right.is_deep else (2 * VECTOR, 2)
        self.packs = ir.Fragment("b_packs", "word", tuple(map(Number, shape)), True)

    def place(self, i: Index) -> tuple[Index, Index]:
        """Column and depth of a pack's first word."""
        half = CHUNKS // 2 * VECTOR
        if self.frame.right.is_deep:
            return self.own_column + i // 2 * 64, self.own_chunk * VECTOR + i % 2 * half
        return self.own_column, self.own_chunk * VECTOR + i % VECTOR + i // VECTOR * half

    def store(self) -> None:
        with self.k.unrolled("j", Number(2)) as j:
            if self.frame.right.is_deep:
                first, second = (ir.Element(self.packs, (j * 2 + half,)) for half in range(2))
                self._split(first, second, self.own_column + j * 64)
                return
            halves = (("column", range(VECTOR)), ("half_on", range(VECTOR, 2 * VECTOR)))
            first, second = (turned(self.k, self.packs, each, j, name) for name, each in halves)
            self._split(first, second, self.own_column + j)

    def _split(self, first: ir.Element, second: ir.Element, column: Index) -> None:
        for words, chunk in ((first, self.own_chunk), (second, self.own_chunk + CHUNKS // 2)):
            with self.k.scope():  # of registers too
                put(self.k, words, "high", self.frame.b_high, chunk, column)
        parts: tuple[tuple[str, Part, ir.Shared], ...]
        parts = (("near", "high", self.frame.b_near), ("rest", "low", self.frame.b_rest))
        for name, part, tile in parts:
            into = ir.Element(ir.Fragment(name, "halves", (FOUR,), True))
            with self.k.scope():
                self.k.add(ir.SplitPairs(into, (first, second), part, declares=True))
                self.k.add(ir.Store(into, ir.InShared(tile, (self.own_chunk, column, ZERO))))


def turned(k: Builder, packs: ir.Fragment, which: Sequence[int], word: Index, name: str) -> ir.Element:
    """Of several packs a word each: so many of the depth of one column."""
    column = ir.Fragment(name, "word", (Number(len(which)),), True)
    k.add(ir.Declare((column,)))
    for j, pack in enumerate(which):
        k.add(ir.Convert(ir.Element(column, (Number(j),)), ir.Element(packs, (Number(pack), word))))
    return ir.Element(column)


def put(k: Builder, words: ir.Element, part: Part, tile: ir.Shared, chunk: Index, column: Index) -> None:
    """Higher or lower words, to a chunk of a column."""
    into = ir.Element(ir.Fragment(part, "tf32", (FOUR,), True))
    k.add(ir.Split(into, words, part, declares=True), ir.Store(into, ir.InShared(tile, (chunk, column, ZERO))))
