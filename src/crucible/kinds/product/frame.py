"""What all warpgroups of a product agree on: operands, stages of shared memory, which tiles a block makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from crucible.algebra.buffer import Buffer
from crucible.algebra.product import Product
from crucible.algebra.program import Operand
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Place, Size
from crucible.schedule.product import STAGES, STEP, TILE, ProductDivision

CONSUMERS, PRODUCERS = 256, 256
"""Threads that multiply, and that stage: two warpgroups each."""
THREADS = CONSUMERS + PRODUCERS
VECTOR = 4
"""Words that are moved at once."""
CHUNKS = STEP // VECTOR
"""Along the depth of a step."""
CHUNK_PITCH = TILE + 1
"""Columns from a chunk to the next: one more than there are, so that eight chunks go to all banks."""
PAIRS = (CHUNKS // 2, CHUNK_PITCH, 2 * VECTOR)
"""The right operand in bfloat16: in a chunk a word of the depth beside that half a step on."""
ROW_PITCH, LINE_PITCH = STEP + 4, TILE + 8
"""Words from a row of the left operand to the next, where its depth are neighbours; from a line of 128 rows to the
next, where rows are: fragments are read without bank conflicts."""


def elements(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """From the first to the last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


@dataclass(frozen=True)
class Side:
    """An operand, and how it lies in memory."""

    tensor: ir.Tensor
    lines: Size
    """Its rows; of the right one the columns of the result."""
    batch: Size
    """From one to the next of several products."""
    line: Size
    depth: Size
    """From an element to the next one."""

    @property
    def is_deep(self) -> bool:
        """Whether along the depth its elements are neighbours."""
        return self.depth.value == 1

    @property
    def sizes(self) -> tuple[Size, ...]:
        return self.lines, self.batch, self.line, self.depth


def side(operand: Operand, shape: tuple[int, int, int], lines: str, word: str) -> Side:
    tensor = ir.Tensor(operand.name, "float32", "read", elements(shape, operand.strides))
    named = zip(("batch", "line", "depth"), operand.strides, strict=True)
    strides = (Size(f"{word}_{of}_stride", stride) for of, stride in named)
    return Side(tensor, Size(lines, shape[1], counts=True), *strides)


@dataclass(frozen=True)
class Item:
    """A tile of the result by a part of the depth."""

    row: Index
    """Its first."""
    column: Index
    batch: Index
    part: Index
    start: Index
    """Its first step."""
    stop: Index
    """The one behind its last."""


class Frame:
    """One kernel while it is made."""

    def __init__(self, division: ProductDivision, parts: Buffer | None) -> None:
        self.division = division
        product = self.product
        self.left = side(product.left, product.left_shape, "rows", "left")
        self.right = side(product.right, product.right_shape, "columns", "right")
        self.depth = Size("depth", product.depth, counts=True)
        self.steps = Size("steps", division.steps, counts=True)
        count = product.batch * product.rows * product.columns
        laid = (product.rows * product.columns, product.columns) if parts else product.result_strides
        self.out_part = Size("out_part_stride", count)
        self.out_batch, self.out_row = Size("out_batch_stride", laid[0]), Size("out_row_stride", laid[1])
        shape = (division.parts, product.batch, product.rows, product.columns)
        name = parts.name if parts else product.result
        self.result = ir.Tensor(name, "float32", "write", elements(shape, (count, *laid, 1)))
        left = (TILE, ROW_PITCH) if self.left.is_deep else (STEP, LINE_PITCH)
        right = (CHUNKS, CHUNK_PITCH, VECTOR)
        self.a = _tile("a", "word", left, "the left operand as it is")
        self.b_high = _tile("b_high", "tf32", right, "the right one's higher words")
        self.b_low = _tile("b_low", "tf32", right, "its lower ones")
        self.b_near = _tile("b_near", "bfloat16", PAIRS, "the same in bfloat16")
        self.b_rest = _tile("b_rest", "bfloat16", PAIRS, "what TF32 leaves of it")
        lower = (self.b_near, self.b_rest) if division.is_mixed else (self.b_low,)
        self.ring = ir.Pipeline("ring", (self.a, self.b_high, *lower), STAGES, PRODUCERS, CONSUMERS)

    @property
    def product(self) -> Product:
        return self.division.product

    @property
    def sizes(self) -> tuple[Size, ...]:
        return (
            self.depth, self.steps, *self.left.sizes, *self.right.sizes, self.out_part, self.out_batch, self.out_row,
        )  # fmt: skip

    @contextmanager
    def items(self, k: Builder) -> Iterator[Item]:
        """What a block makes: all rows of some columns first, so that the right operand is read once."""
        division = self.division
        blocks, items = Number(division.blocks), Number(division.items)
        with k.loop("item", Place("block", division.blocks), items, blocks, "int") as item:
            tile: Index = item
            part: Index = ZERO
            if division.parts > 1:
                tile = k.let("tile", item % division.tiles, "int")
                part = k.let("part", item // division.tiles, "int")
            row = k.let("first_row", tile % division.row_tiles * TILE, "int")
            column = k.let("first_column", tile // division.row_tiles % division.column_tiles * TILE, "int")
            batch: Index = ZERO
            if self.product.batch > 1:
                batch = k.let("b", tile // (division.row_tiles * division.column_tiles), "int")
            start, stop = (n * self.steps // division.parts for n in (part, part + 1))
            yield Item(row, column, batch, part, start, stop)

    def within(self, size: Size, at: Index, whole: int) -> Condition:
        """That it is inside, where not all is."""
        return (Compare("<", at, size),) if size.value % whole else ()


def _tile(name: str, dtype: str, shape: tuple[int, ...], note: str) -> ir.Shared:
    return ir.Shared(name, dtype, tuple(map(Number, shape)), note)
