"""Where a thread of a program's kernel stands: its row, its part of the row, its columns, and what it finds there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from crucible.algebra.program import Operand, Program, Result
from crucible.algebra.tidy import is_of_rows
from crucible.gpus import MAX_THREADS_PER_BLOCK
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Place, Size, Smaller, Variable
from crucible.kinds.program.geometry import Geometry
from crucible.kinds.program.layout import Access, Tensor, access_of, is_across, reach, runs, start_of, wide
from crucible.schedule.passes import passes

_SAID = {
    "packs": "of a thread",
    "vector": "neighbours that a thread takes at once",
    "team": "threads that share a row",
    "groups": "of threads, which share the columns",
    "lanes": "threads side by side",
    "block_rows": "of a block",
    "row_blocks": "blocks that share a part of the columns",
    "chunks": "blocks that share a row",
    "chunk_columns": "of a block",
    "line": "a column's rows; so many that columns meet different banks",
    "pitch": "odd, so that groups meet different banks",
}


class Frame:
    """A program in a geometry: the sizes, the tensors, and the statements with which a kernel begins."""

    def __init__(self, program: Program, geometry: Geometry) -> None:
        self.program, self.geometry = program, geometry
        self.along_rows = geometry.along == "rows"
        self.split = geometry.chunks > 1 and bool(program.reductions)
        self.type: Literal["unsigned", "size_t"] = "unsigned" if geometry.index == "unsigned" else "size_t"
        self.all: list[Tensor] = [*program.operands, *program.results]
        self._offset_sizes: dict[str, Size] = {}
        self._own_sizes()
        self.lane = Place("thread", geometry.threads)
        self.block = Place("block", geometry.blocks(program.row_count))
        self.row: Index = ZERO
        self.chunk: Index = ZERO
        self.begin: Index = ZERO
        self.end: Index = self.columns
        self.thread: Index = self.lane if geometry.team > 1 else ZERO
        """Among those that share the columns."""
        self.tile: Index = ZERO
        """Where a tile begins."""
        self.column = Variable("column" if program.reductions or program.rows else "i")
        self.tensors = {each.name: self._tensor(each) for each in self.all}
        self.parts = {r.name: self._part(r.name) for r in program.reductions} if self.split else {}
        self.base: dict[str, ir.Tensor | ir.Pointer] = dict(self.tensors)

    def _own_sizes(self) -> None:
        program, geometry = self.program, self.geometry
        columns = "columns" if program.reductions or program.rows else "elements"
        step = "columns that a block takes at once" if geometry.looped else "of a block"
        self.rows, self.columns = Size("rows", program.row_count), Size(columns, program.column_count)
        self.block_rows = _size("block_rows", geometry.block_rows)
        self.row_blocks = _size("row_blocks", math.ceil(program.row_count / geometry.block_rows))
        self.chunks, self.chunk_columns = _size("chunks", geometry.chunks), _size("chunk_columns", geometry.chunk)
        self.step = Size("step", geometry.tile, step)
        self.threads, self.lanes = _count("threads", geometry.threads), _count("lanes", geometry.lanes)
        self.groups, self.team = _count("groups", geometry.team), _count("team", geometry.team)
        self.vector, self.packs = _count("vector", geometry.vector), _count("packs", geometry.packs)
        self.pitch = _count("pitch", (geometry.vector | 1) * geometry.lanes)
        self.line = _size("line", geometry.line)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """In the order in which text declares them."""
        own = (
            self.rows, self.columns, self.block_rows, self.row_blocks, self.chunks, self.chunk_columns, self.step,
            self.line,
        )  # fmt: skip
        offsets = tuple(self._offset_sizes[name] for name in sorted(self._offset_sizes))
        counts = (self.threads, self.lanes, self.groups, self.team, self.vector, self.packs, self.pitch)
        return (*own, *offsets, *counts)

    def _tensor(self, tensor: Tensor) -> ir.Tensor:
        elements = reach(tensor, self.program.shape) + 1
        return ir.Tensor(tensor.name, tensor.dtype, "read" if isinstance(tensor, Operand) else "write", elements)

    def _part(self, reduction: str) -> ir.Tensor:
        elements = self.program.row_count * self.geometry.chunks
        return ir.Tensor(f"{reduction}_parts", self.program.precision, "write", elements)

    # where a thread stands

    def head(self, k: Builder) -> None:
        """The statements with which a kernel begins."""
        geometry, many = self.geometry, self.program.row_count > self.geometry.block_rows
        if geometry.chunks == 1:
            self._find_row(k, self.block)
            return
        if many and self.along_rows:  # rows are neighbours: so are blocks
            self.chunk = k.let("chunk", self.block // self.row_blocks)
            self._find_row(k, self.block % self.row_blocks)
        elif many:
            self.chunk = k.let("chunk", self.block % self.chunks)
            self._find_row(k, self.block // self.chunks)
        else:
            self.chunk = k.let("chunk", self.block)
            self._find_row(k, ZERO)
        if geometry.looped:
            self.begin = k.let("begin", self.chunk * self.chunk_columns)
            self.end = k.let("end", Smaller(self.begin + self.chunk_columns, self.columns))

    def _find_row(self, k: Builder, block: Index) -> None:
        """From the block's place among rows."""
        geometry, rows = self.geometry, self.program.row_count
        if self.along_rows:
            self._find_row_beside_others(k, block)
            return
        if geometry.team == geometry.threads:
            self.row = k.let("row", block) if rows > 1 else ZERO
            return
        if geometry.team > 1:
            self.thread = k.let("thread", self.lane % self.team, "unsigned")
        self.row = row = k.let("row", block * self.block_rows + self.lane // self.team)
        if rows % geometry.block_rows and geometry.team >= 32:  # whole warps
            k.add(ir.Exit(row, self.rows))

    def _find_row_beside_others(self, k: Builder, block: Index) -> None:
        geometry = self.geometry
        own = self.lane % self.lanes if geometry.team > 1 else self.lane
        self.row = row = k.let("row", (block * self.lanes + own) * self.vector)
        self.thread = k.let("group", self.lane // self.lanes, "unsigned") if geometry.team > 1 else ZERO
        if self.program.row_count % geometry.block_rows:
            k.add(ir.Exit(row, self.rows))

    @property
    def rows_missing(self) -> bool:
        """Whether lanes of a warp may stand beyond the last row: they stay, since the others shuffle with them."""
        geometry = self.geometry
        return not self.along_rows and geometry.team < 32 and self.program.row_count % geometry.block_rows != 0

    @property
    def _has_row(self) -> Condition:
        return (Compare("<", self.row, self.rows),) if self.rows_missing else ()

    def column_of(self, pack: Index) -> Index:
        """The column of a pack's first element."""
        geometry = self.geometry
        count = self.groups if self.along_rows else self.threads if geometry.team == geometry.threads else self.team
        place = pack * count + self.thread
        start = self.tile if geometry.looped else self.chunk * self.step
        return start + (place if self.along_rows else place * self.vector)

    @property
    def guard(self) -> Condition:
        """Under which there is such a column."""
        end = self.end if self.geometry.looped and self.geometry.chunks > 1 else self.columns
        return (*self._has_row, *((Compare("<", self.column, end),) if self.is_ragged else ()))

    @property
    def is_ragged(self) -> bool:
        """Whether a tile may have columns that there are not."""
        geometry, columns = self.geometry, self.program.column_count
        part = geometry.chunk if geometry.chunks > 1 else columns
        return bool(columns % part or part % geometry.tile)

    @property
    def is_told_threads(self) -> bool:
        """Whether its compiler is: of a row that stays in registers, so that only the last pack is asked for columns.
        ptxas sent the loads of a row of 8836 out one by one else (instance norm, 74 registers for 40: 145 us where all
        at once take 108; H100). Of 1024 threads, which have 64 registers, one spilled for it."""
        geometry = self.geometry
        several = geometry.packs > 1 and not geometry.looped and len(passes(self.program)) > 1
        return self.is_ragged and several and geometry.threads < MAX_THREADS_PER_BLOCK

    @property
    def first(self) -> Condition:
        """Under which a thread speaks for all that share its row."""
        alone = (Compare("==", self.thread, ZERO),) if self.geometry.team > 1 else ()
        return (*alone, *self._has_row)

    # where tensors lie

    def is_wide(self, tensor: Tensor) -> bool:
        """Whether it is read or written for each element."""
        if isinstance(tensor, Result):
            return not self.program.is_per_row(tensor)
        return not is_of_rows(tensor, self.program.rows)

    def access(self, tensor: Tensor) -> Access:
        """How neighbours are read; single elements count as `same`."""
        if self.geometry.vector == 1:
            return "same"
        return access_of(tensor, self.program, self.geometry.vector, along_rows=self.along_rows)

    def is_turned(self, tensor: Tensor) -> bool:
        """Whether it passes through shared memory."""
        if not self.geometry.turned or tensor not in wide(self.program):
            return False
        return self.access(tensor) == "each" if self.along_rows else is_across(tensor, self.program)

    def element(self, tensor: Tensor, j: Index) -> ir.Global:
        """The j-th of a pack."""
        return ir.Global(self.base[tensor.name], self._place(tensor, j, self.row, self.column))

    def pack(self, tensor: Tensor) -> ir.Global:
        """The first of a pack; what all of it share."""
        return ir.Global(self.base[tensor.name], self._place(tensor, None, self.row, self.column))

    def at(self, tensor: Tensor, row: Index, column: Index) -> ir.Global:
        """Wherever that is; of a tensor that is turned round."""
        return ir.Global(self.tensors[tensor.name], self.offset(tensor, row, column))

    def offset(self, tensor: Tensor, row: Index, column: Index) -> Index:
        """In a tensor that is turned round."""
        return self._place(tensor, ZERO, row, column)

    def _place(self, tensor: Tensor, j: Index | None, row: Index, column: Index) -> Index:
        rows, dims = self.program.rows, len(self.program.shape)
        if self.along_rows or self.is_turned(tensor):
            own = ZERO if j is None else self._of_row(tensor, row + j)
            return own + self._offset(tensor, column, rows, dims)
        return self._offset(tensor, column + (ZERO if j is None else j), rows, dims)

    def row_element(self, tensor: Tensor, j: Index) -> ir.Global:
        """Of the row that the j-th of a pack belongs to."""
        row = self.row + j if self.along_rows else self.row
        return ir.Global(self.tensors[tensor.name], self._of_row(tensor, row))

    def part(self, reduction: str, j: Index) -> ir.Global:
        """What this block found of a reduction: [row][chunk] along columns, [chunk][row] along rows."""
        place = self.chunk * self.rows + (self.row + j) if self.along_rows else self.row * self.chunks + self.chunk
        return ir.Global(self.parts[reduction], place)

    def bases(self, k: Builder) -> None:
        """A pointer to the row, for each tensor that is read or written for each element."""
        for each in filter(self.is_wide, self.all):
            offset = self._of_row(each, self.row)
            wanders = self.access(each) == "each" if self.along_rows else self.is_turned(each)
            if offset != ZERO and not wanders:
                pointer = ir.Pointer(f"{each.name}_row", self.tensors[each.name], offset)
                self.base[each.name] = pointer
                k.add(ir.Declare(pointer))

    def _of_row(self, tensor: Tensor, row: Index) -> Index:
        start = start_of(tensor)
        own = self._offset(tensor, row, 0, self.program.rows)
        return own + self._named(f"{tensor.name}_start", start) if start else own

    def _offset(self, tensor: Tensor, index: Index, first: int, last: int) -> Index:
        """The offset that an index means, which is linear over the dims from `first` to before `last`."""
        dims = range(first, min(last, len(tensor.strides)))
        sizes, strides = [self.program.shape[dim] for dim in dims], [tensor.strides[dim] for dim in dims]
        found = runs(sizes, strides)
        offset: Index = ZERO
        for place, run in enumerate(found):
            if run.stride:
                below = [first + dim for other in found[place + 1 :] for dim in other.dims]
                own = [first + dim for dim in run.dims] if place else []
                offset = offset + self._term(tensor, index, run.stride, (first + run.dims[-1], own, below))
        return offset

    def _term(self, tensor: Tensor, index: Index, stride: int, dims: tuple[int, list[int], list[int]]) -> Index:
        last, own, below = dims
        if below:
            index = index // self._extent(below)
        if own:
            index = index % self._extent(own)
        name = f"{tensor.name}_stride_{last}"
        return index if stride == 1 else index * self._named(name, stride)

    def _extent(self, dims: Sequence[int]) -> Index:
        """Of dims together."""
        sizes = [self._named(f"size_{dim}", self.program.shape[dim]) for dim in dims]
        found: Index = sizes[0]
        for size in sizes[1:]:
            found = found * size
        return found

    def _named(self, name: str, value: int) -> Size:
        return self._offset_sizes.setdefault(name, Size(name, value))


def _size(name: str, value: int) -> Size:
    return Size(name, value, _SAID[name])


def _count(name: str, value: int) -> Size:
    return replace(Size(name, value, _SAID.get(name, "")), counts=True)
