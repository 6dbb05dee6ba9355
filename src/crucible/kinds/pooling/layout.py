"""How threads lie over the windows of a pool."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from crucible.algebra.expression import Expr
from crucible.algebra.pool import Pool, Window
from crucible.algebra.program import Operand, Result, reads
from crucible.graph import ITEM_BYTES

SECTOR_BYTES, ACCESS_BYTES = 32, 16
"""Of memory, and of the largest access."""
LARGEST_ROW = 16
"""Elements of a row that a thread holds in registers."""
INT_LIMIT = 2**31 - 2**16


@dataclass(frozen=True)
class Layout:
    """A pool (its outer dims collapsed), and how threads lie over it: each takes `lanes` windows along the last dim."""

    pool: Pool
    lanes: int = 1
    rows: bool = False
    """Whether a thread goes over the elements of all its windows along the last dim in one loop, and reads those of
    the leading operand as one row."""
    spread: int | None = None
    """An output dim along which a thread takes several windows that lie side by side in the output, not in the input:
    where both differ in layout, so that reads and writes are both of whole sectors."""
    spread_by: int = 1
    """How many; 1 without."""

    @property
    def windows(self) -> tuple[Window, ...]:
        return self.pool.windows

    @property
    def rank(self) -> int:
        return len(self.pool.outer)

    @property
    def row_elements(self) -> int:
        """Elements of a thread's windows along the last dim."""
        return self.lanes * self.windows[-1].size

    @property
    def together(self) -> int:
        """All windows of a thread."""
        return self.lanes * self.spread_by

    @property
    def along(self) -> int:
        """The output dim along which they lie."""
        return len(self.dims) - 1 if self.spread is None else self.spread

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """Names of output dims."""
        outer = {0: (), 1: ("plane",), 2: ("n", "c")}.get(self.rank)
        if outer is None:
            outer = ("n", *(f"n{i}" for i in range(1, self.rank - 1)), "c")
        return (*outer, *self.spatial)

    @property
    def spatial(self) -> tuple[str, ...]:
        return ("d", "h", "w")[3 - len(self.windows) :]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Output dims from the slowest to the fastest, by the strides of the largest tensor that is read."""
        return slow_to_fast(leading(self.pool).strides)

    @cached_property
    def crossing(self) -> tuple[int, int] | None:
        """The dim along which the result is dense where what is read is not, and how many neighbours of what is read
        are a sector: a warp takes so many, and along that dim as many as it has threads left. None where the two lie
        alike, or threads take several windows."""
        shape, fastest, dense = self.pool.output_shape, self.order[-1], _dense(self.pool, self.pool.result)
        count = SECTOR_BYTES // ITEM_BYTES[leading(self.pool).dtype]
        apart = dense not in (None, fastest) and self.together == 1 and fastest < self.rank
        return (dense, count) if dense is not None and apart and shape[fastest] % count == 0 else None

    @cached_property
    def index(self) -> Literal["int", "long long"]:
        """The type of an index."""
        pool = self.pool
        ends = [extent(each.strides, pool.input_shape) for each in pool.operands]
        ends += [extent(each.strides, pool.output_shape) for each in pool.after_operands]
        ends.append(extent(pool.result.strides, pool.output_shape))
        largest = max(*ends, math.prod(pool.input_shape), math.prod(pool.output_shape))
        return "long long" if largest >= INT_LIMIT else "int"

    def lanes_packed(self, tensor: Operand | Result) -> bool:
        """Whether what lies beside a thread's windows in the output is read or written as one row."""
        return self.together > 1 and _side_by_side(tensor, self.pool.output_shape, self.along, self.together)

    def row_packed(self, operand: Operand) -> bool:
        """Whether a thread reads an operand's elements along the last dim as one row."""
        last, elements = len(self.dims) - 1, self.row_elements
        return self.rows and elements > 1 and _side_by_side(operand, self.pool.input_shape, last, elements)


def laid_out(pool: Pool, result: Result | None = None) -> Layout:
    """As many windows a thread as fill 16 bytes of every row, if the windows tile; if `result` is laid out in another
    order than what is read, as many as fill 32 bytes of it."""
    one = Layout(pool)
    if result is not None and (turned := _turned(one, result)):
        return turned
    window, lead = pool.windows[-1], leading(pool)
    if not window.tiles or one.order[-1] != len(one.dims) - 1 or lead.strides[-1] != 1:
        return one
    best, widest = one, 1
    for lanes in range(1, LARGEST_ROW // window.size + 1):
        layout = replace(one, lanes=lanes, rows=True)
        rows = [each for each in pool.operands if pool.moves(each) and each.strides[-1] == 1]
        width = access_width(layout.row_elements, lead.dtype)
        if window.outputs % lanes == 0 and width > widest and all(layout.row_packed(each) for each in rows):
            best, widest = layout, width
    return best


def _turned(layout: Layout, result: Result) -> Layout | None:
    """With several windows a thread along the dim in which the result is dense, where the input is not."""
    shape, dense, lead = layout.pool.output_shape, _dense(layout.pool, result), leading(layout.pool)
    if dense is None or dense == layout.order[-1] or lead.strides[layout.order[-1]] != 1:
        return None
    for bytes_ in (SECTOR_BYTES, SECTOR_BYTES // 2, SECTOR_BYTES // 4):
        count = bytes_ // ITEM_BYTES[result.dtype]
        if count > 1 and shape[dense] % count == 0 and _side_by_side(result, shape, dense, count):
            turned = replace(layout, spread=dense, spread_by=count, rows=layout.windows[-1].tiles)
            whole = layout.order[-1] == len(layout.dims) - 1 and turned.row_packed(lead)
            return turned if whole else replace(turned, rows=False)
    return None


def _dense(pool: Pool, result: Result) -> int | None:
    """The dim along which a result's neighbours lie."""
    shape = pool.output_shape
    return next((dim for dim, stride in enumerate(result.strides) if stride == 1 and shape[dim] > 1), None)


def _side_by_side(tensor: Operand | Result, shape: Sequence[int], lane: int, elements: int) -> bool:
    """Whether so many neighbours along one dim lie side by side, and aligned for wide accesses wherever a thread's
    begin."""
    width, strides = access_width(elements, tensor.dtype), tensor.strides
    others = [stride for dim, stride in enumerate(strides) if dim != lane and shape[dim] > 1]
    return strides[lane] == 1 and all(stride % width == 0 for stride in others)


def access_width(elements: int, dtype: str) -> int:
    """How many of so many neighbours are moved at once: the largest power of two that divides them, up to 16 bytes."""
    return min(ACCESS_BYTES // ITEM_BYTES[dtype], elements & -elements)


def slow_to_fast(strides: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))


def leading(pool: Pool) -> Operand:
    """The operand by whose layout threads are laid: the first that differs everywhere, else the first."""
    moving = [operand for operand in pool.operands if pool.moves(operand)]
    return next((each for each in moving if all(each.strides)), (*moving, *pool.operands)[0])


def extent(strides: Sequence[int], shape: Sequence[int]) -> int:
    """Elements from the first to the last."""
    return 1 + sum((max(size, 1) - 1) * stride for size, stride in zip(shape, strides, strict=True))


def used(operands: Iterable[Operand], *exprs: Expr) -> list[Operand]:
    """The operands that are read."""
    names = frozenset[str]().union(*(reads(expr) for expr in exprs))
    return [operand for operand in operands if operand.name in names]
