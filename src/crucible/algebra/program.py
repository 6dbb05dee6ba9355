"""Programs: what one fused kernel, or a few in a row, compute over a space of rows and columns.

    rows (leading dims)   columns (the rest)
    operands    tensors laid over the space by strides; 0 along dims that share an element
    reductions  one number for each row, a sum or a maximum over its columns; later ones may read earlier ones
    results     a value for each element, or for each row; perhaps summed over the dims that share an element

Everything around a matrix product has this form: a pointwise chain is a program without reductions, softmax has a
maximum and a sum, a norm has a mean and a mean square. The gradient of a program is a program again (`adjoint`).
Families turn programs into CUDA C++.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from crucible.algebra.expression import Expr, inputs, name_of, parameter, tensor
from crucible.algebra.interval import Interval

KINDS = ("sum", "max")


@dataclass(frozen=True)
class Operand:
    """A tensor that is read."""

    name: str
    """A C++ identifier."""
    dtype: str
    strides: tuple[int, ...]
    """In elements, one for each dim of the space; 0 where elements share."""
    shared: bool = False
    """Whether expressions read it as a `parameter`, not as a `tensor`: many elements share one of its own."""
    bounds: Interval | None = None
    """Where its elements are known to lie, by what computed them."""
    constant: bool = False
    """Has no gradient: results depend on it by rounding alone, as on the number around which squares are summed."""
    start: int = 0
    """Elements of the tensor before the first that is read. Other than 0 in programs alone."""

    @property
    def leaf(self) -> Expr:
        """What expressions read."""
        return parameter(self.name, self.dtype) if self.shared else tensor(self.name, self.dtype)


@dataclass(frozen=True)
class Reduction:
    """A number for each row."""

    name: str
    """A C++ identifier; later expressions read it as `parameter(name)`."""
    kind: str
    """`sum` or `max` (NaN if any is) over the columns. Of no columns: 0, minus infinity."""
    expr: Expr
    """Of each element."""
    still: frozenset[str] = frozenset()
    """Earlier reductions on which the derivative of this one is known to vanish in exact arithmetic: a variance does
    not change with the mean it is taken around."""
    constant: bool = False
    """Has no gradient: the maximum that softmax takes out for the sake of range alone."""

    @property
    def leaf(self) -> Expr:
        return parameter(self.name)


@dataclass(frozen=True)
class Result:
    """A tensor that is written."""

    name: str
    dtype: str
    strides: tuple[int, ...]
    """In elements; one for each dim of the space, or one for each row dim: then `expr` is the same for a whole row."""
    expr: Expr
    sums: bool = False
    """Sum over the dims of stride 0. Without it what shares a place is one number, which each writes: a moving mean of
    one channel that is repeated for several."""

    def kept(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The dims along which its elements differ."""
        return tuple(dim for dim, stride in enumerate(self.strides) if stride and shape[dim] > 1)


@dataclass(frozen=True)
class Program:
    """One fused computation. Names are unique among operands, reductions and results."""

    name: str
    shape: tuple[int, ...]
    rows: int
    """How many leading dims are rows; all of them where nothing is reduced."""
    operands: tuple[Operand, ...]
    reductions: tuple[Reduction, ...]
    results: tuple[Result, ...]
    precision: str = "float32"
    """What is computed in: `float32`, or `float64` for float64 tensors."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[: self.rows]

    @property
    def column_shape(self) -> tuple[int, ...]:
        return self.shape[self.rows :]

    @property
    def row_count(self) -> int:
        return math.prod(self.row_shape)

    @property
    def column_count(self) -> int:
        return math.prod(self.column_shape)

    def operand(self, name: str) -> Operand:
        """Raises KeyError."""
        return {operand.name: operand for operand in self.operands}[name]

    def is_per_row(self, result: Result) -> bool:
        """Whether a result has one value for each row, not one for each element."""
        return len(result.strides) == self.rows < len(self.shape)


def phases(program: Program) -> dict[str, int]:
    """For each reduction and result the pass over the columns in which it can be computed: 0 if it reads operands
    alone, else one after the last reduction that it reads. A result for rows is due with the pass after its last."""
    due: dict[str, int] = {}
    for name, expr in [*((r.name, r.expr) for r in program.reductions), *((r.name, r.expr) for r in program.results)]:
        due[name] = 1 + max((due[read] for read in reads(expr) if read in due), default=-1)
    return due


def reads(expr: Expr) -> frozenset[str]:
    """Names of the tensors, parameters and reductions that an expression depends on."""
    return frozenset(name_of(leaf) for leaf in inputs(expr))


def trimmed(program: Program) -> Program:
    """Without reductions and operands on which no result depends."""
    wanted = frozenset[str]().union(*(reads(result.expr) for result in program.results))
    kept: list[Reduction] = []
    for reduction in reversed(program.reductions):
        if reduction.name in wanted:
            kept.append(reduction)
            wanted |= reads(reduction.expr)
    operands = tuple(operand for operand in program.operands if operand.name in wanted)
    return replace(program, operands=operands, reductions=tuple(reversed(kept)))


def collapsed(program: Program) -> Program:
    """The same with as few dims as possible: without dims of one element, neighbours merged where every tensor goes
    through both as through one. At least one dim stays; rows stay rows and columns columns."""
    work = _without_ones(program)
    dim = 0
    while dim + 1 < len(work.shape):
        joins = dim + 1 != work.rows and all(_joins(strides, work.shape, dim) for strides in _all_strides(work))
        work = _joined(work, dim) if joins else work
        dim += 0 if joins else 1
    return work


def _all_strides(program: Program) -> list[tuple[int, ...]]:
    return [each.strides for each in program.operands] + [each.strides for each in program.results]


def _joins(strides: tuple[int, ...], shape: tuple[int, ...], dim: int) -> bool:
    return dim + 1 >= len(strides) or strides[dim] == strides[dim + 1] * shape[dim + 1]


def _joined(program: Program, dim: int) -> Program:
    shape = (*program.shape[:dim], program.shape[dim] * program.shape[dim + 1], *program.shape[dim + 2 :])
    rows = program.rows - (dim + 1 < program.rows)
    return _with_dims(replace(program, shape=shape, rows=rows), lambda strides: strides[:dim] + strides[dim + 1 :])


def _without_ones(program: Program) -> Program:
    kept = [dim for dim, size in enumerate(program.shape) if size != 1]
    if not kept:
        kept = [0] if program.shape else []
    rows = sum(dim < program.rows for dim in kept)
    shape = tuple(program.shape[dim] for dim in kept)
    slim = replace(program, shape=shape, rows=rows)
    return _with_dims(slim, lambda strides: tuple(strides[dim] for dim in kept if dim < len(strides)))


def _with_dims(program: Program, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Program:
    operands = tuple(replace(each, strides=change(each.strides)) for each in program.operands)
    results = tuple(replace(each, strides=change(each.strides)) for each in program.results)
    return replace(program, operands=operands, results=results)


def elements(tensor: Operand | Result, shape: Sequence[int]) -> int:
    """How many of its own a tensor has."""
    return math.prod(size for size, stride in zip(shape, tensor.strides, strict=False) if stride)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor that PyTorch makes by itself."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
