"""Where elements lie: the order of dims, and what can be read sixteen bytes at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from crucible.algebra.program import Operand, Program, Result, collapsed, elements
from crucible.graph import ITEM_BYTES

Tensor: TypeAlias = Operand | Result
Access: TypeAlias = Literal["pack", "same", "each"]
"""How a thread reads neighbours: as one piece, as one element for all, or each by itself."""
PACK_BYTES = 16
SECTOR_BYTES = 32
"""What memory gives and takes at least."""
FEW_COLUMNS = 128
"""Which eight threads hold in registers: then a warp still has four rows, neighbours in the other order."""
INT_LIMIT = 2**31


def ordered(program: Program) -> Program:
    """With dims in the order in which elements lie in memory, rows and columns each for themselves, then collapsed.

    Where tensors lie in different orders, those with neighbours among these dims count first, and of them those with
    the fewest: a warp then reaches over several such rows, and so has neighbours in the other order too. Then results
    count before operands, large ones before small ones.
    """
    program = collapsed(program)
    near = neighbours(program)

    def sorted_dims(dims: range) -> list[int]:
        places = {dim: place for place, dim in enumerate(near) if dim in dims}

        def rank(each: Tensor) -> tuple[int, bool]:
            dim = nearest(each, program)
            return len(near) if dim is None else places.get(dim, len(near)), isinstance(each, Operand)

        tensors = sorted(wide(program), key=rank)
        return sorted(
            dims,
            key=lambda dim: tuple(each.strides[dim] if dim < len(each.strides) else 0 for each in tensors),
            reverse=True,
        )

    rows, columns = sorted_dims(range(program.rows)), sorted_dims(range(program.rows, len(program.shape)))
    return collapsed(permuted(program, [*rows, *columns]))


def permuted(program: Program, order: Sequence[int]) -> Program:
    """With its dims in another order; rows stay rows."""

    def turn(strides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(strides[dim] for dim in order if dim < len(strides))

    return replace(
        program,
        shape=turn(program.shape),
        operands=tuple(replace(each, strides=turn(each.strides)) for each in program.operands),
        results=tuple(replace(each, strides=turn(each.strides)) for each in program.results),
    )


def wide(program: Program) -> list[Tensor]:
    """The tensors that make up the traffic: those with half as many elements as the largest, or more; largest first."""
    tensors: list[Tensor] = [*program.operands, *program.results]
    largest = max((elements(each, program.shape) for each in tensors), default=0)
    kept = [each for each in tensors if elements(each, program.shape) * 2 >= largest]
    return sorted(kept, key=lambda each: -elements(each, program.shape))


def nearest(tensor: Tensor, program: Program) -> int | None:
    """The dim along which a tensor has its neighbours in memory; None where it has no dim for the columns."""
    dims = [dim for dim, stride in enumerate(tensor.strides) if stride and program.shape[dim] > 1]
    whole = len(tensor.strides) == len(program.shape)
    return min(dims, key=lambda dim: tensor.strides[dim], default=None) if whole else None


def neighbours(program: Program) -> tuple[int, ...]:
    """The dims along which tensors that make up the traffic have their neighbours, the shortest first: several where
    one lies channels-last, another does not."""
    found = {nearest(each, program) for each in wide(program)} - {None}
    return tuple(sorted((dim for dim in found if dim is not None), key=lambda dim: (program.shape[dim], -dim)))


def runs_along_rows(program: Program) -> bool:
    """Whether threads go along rows: neighbours in memory lie in different rows. Where some tensors have them there
    and others along columns, threads go along rows unless a few of them can hold a row."""
    if is_crossed(program):
        return program.column_count > FEW_COLUMNS
    return any(dim < program.rows for dim in neighbours(program))


def is_crossed(program: Program) -> bool:
    """Whether some tensors have their neighbours along rows, others along columns."""
    return len({dim < program.rows for dim in neighbours(program)}) > 1


def is_across(tensor: Tensor, program: Program) -> bool:
    """Whether a tensor has its neighbours, one beside the other, along rows."""
    dim = nearest(tensor, program)
    return dim is not None and dim < program.rows and tensor.strides[dim] == 1


def crossed(program: Program) -> Program:
    """A program without reductions whose tensors lie in different orders, with the shortest dim of neighbours as its
    rows; any other as it is, of one row."""
    flat = collapsed(replace(program, rows=0))
    near = neighbours(flat)
    if len(near) < 2 or 0 in flat.shape:
        return flat
    rest = [dim for dim in range(len(flat.shape)) if dim != near[0]]
    return replace(permuted(flat, [near[0], *rest]), rows=1)


def start_of(tensor: Tensor) -> int:
    """Where its first element is."""
    return tensor.start if isinstance(tensor, Operand) else 0


def reach(tensor: Tensor, shape: Sequence[int]) -> int:
    """The largest offset of an element."""
    return start_of(tensor) + sum((size - 1) * stride for size, stride in zip(shape, tensor.strides, strict=False))


def index_type(program: Program) -> str:
    """`unsigned` where every offset and every count is below 2^31."""
    tensors: list[Tensor] = [*program.operands, *program.results]
    largest = max([math.prod(program.shape), *(reach(each, program.shape) for each in tensors)])
    return "unsigned" if largest < INT_LIMIT else "size_t"


@dataclass(frozen=True)
class Run:
    """Some dims through which a tensor goes as through one."""

    size: int
    stride: int
    dims: tuple[int, ...]


def runs(sizes: Sequence[int], strides: Sequence[int]) -> list[Run]:
    """Neighbouring dims joined where the tensor allows it, outermost first."""
    found: list[Run] = []
    for dim in reversed(range(len(sizes))):
        if found and strides[dim] == found[0].stride * found[0].size:
            found[0] = Run(found[0].size * sizes[dim], found[0].stride, (dim, *found[0].dims))
        else:
            found.insert(0, Run(sizes[dim], strides[dim], (dim,)))
    return found


def access(sizes: Sequence[int], strides: Sequence[int], others: Sequence[int], vector: int) -> Access:
    """How `vector` neighbours along these dims are read, aligned to `vector`; `others` are strides of other dims."""
    found = runs(sizes, strides)
    if not found or (found[-1].stride == 0 and found[-1].size % vector == 0):
        return "same"
    *outer, inner = found
    whole = inner.stride == 1 and inner.size % vector == 0
    aligned = all(stride % vector == 0 for stride in [*others, *(run.stride for run in outer)])
    return "pack" if whole and aligned else "each"


def access_of(tensor: Tensor, program: Program, vector: int, *, along_rows: bool) -> Access:
    """How neighbours along rows, or else along columns, are read, of a tensor with strides for all dims."""
    rows, strides, shape = program.rows, tensor.strides, program.shape
    start = (start_of(tensor),)
    if along_rows:
        return access(shape[:rows], strides[:rows], strides[rows:] + start, vector)
    return access(shape[rows:], strides[rows:], strides[:rows] + start, vector)


def begins_anywhere(tensor: Tensor, program: Program, across: bool) -> bool:
    """Whether neighbours, among the rows where `across`, else along columns, begin anywhere in a sector of memory."""
    sector = SECTOR_BYTES // ITEM_BYTES[tensor.dtype]
    return access_of(tensor, program, sector, along_rows=across) != "pack"


def vector_width(program: Program, along_rows: bool) -> int:
    """How many neighbours a thread takes: as many as make the traffic move in the largest pieces."""
    rows = program.rows
    sizes = program.shape[:rows] if along_rows else program.shape[rows:]
    tensors = [each for each in wide(program) if len(each.strides) == len(program.shape)]
    best, most = 1, 0
    limit = PACK_BYTES // max((ITEM_BYTES[each.dtype] for each in tensors), default=4)
    for vector in (width for width in (1, 2, 4, 8) if width <= limit and math.prod(sizes) % width == 0):
        moved = 0
        for each in tensors:
            packed = access_of(each, program, vector, along_rows=along_rows) == "pack"
            moved += ITEM_BYTES[each.dtype] * (vector if packed else 1)
        if moved > most:
            best, most = vector, moved
    return best
