"""Values that are not computed yet: an expression over a space, waiting for what else joins the same kernel.

A lazy value has the shape that PyTorch gives it, and a space in which it is computed. Each dim of its shape is a
product of dims of the space, so views and transpositions are free; what a reduction takes away stays in the space as
columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.expression import Expr, tensor
from crucible.algebra.interval import Interval
from crucible.algebra.pool import Window
from crucible.algebra.program import Operand, Reduction, contiguous

Shape = tuple[int, ...]
Dims = tuple[tuple[int, ...], ...]


class NotCovered(Exception):
    """A rule does not cover these arguments of its operation, which stays with PyTorch. Never leaves this room."""


class CannotJoin(Exception):
    """Two values need different spaces, so one of them must be computed first. Never leaves this room."""


@dataclass(frozen=True)
class Pooling:
    """A pool that a lazy value is computed from."""

    name: str
    """Of the operand that stands for the pool's value."""
    kind: str
    """`max` or `avg`."""
    before: Lazy
    """What it pools: (outer dims, spatial dims)."""
    windows: tuple[Window, ...]
    count_include_pad: bool
    divisor: int | None

    @property
    def shape(self) -> Shape:
        """Of its value: a number for each window."""
        return (*self.before.shape[: -len(self.windows)], *(window.outputs for window in self.windows))

    @property
    def tensors(self) -> Mapping[str, str]:
        """For each operand the tensor in memory that it reads."""
        return self.before.tensors


@dataclass(frozen=True)
class Windowed:
    """A pool inside of a convolution's kernel."""

    kind: str
    """`max` or `avg`."""
    sizes: Shape
    """Of its windows."""
    before: Lazy
    """The chain that it pools, over the pool's output: what each window has in common, and the product for which the
    convolution's name stands."""

    def outputs(self, shape: Shape) -> Shape:
        """What it makes of a shape [N, C, *spatial]."""
        return (*shape[:2], *(n // size for n, size in zip(shape[2:], self.sizes, strict=True)))


@dataclass(frozen=True)
class Convolving:
    """A convolution that a lazy value is computed from."""

    name: str
    """Of the operand that stands for its product."""
    correlation: Correlation
    source: Lazy
    """A tensor in memory."""
    weight: Lazy
    """A tensor in memory, contiguous."""
    exact: bool = False
    """As in `Convolution`."""
    pool: Windowed | None = None
    front: Expr | None = None
    """As in `Convolution`."""

    @property
    def shape(self) -> Shape:
        """Of its value."""
        shape = self.correlation.out_shape
        return self.pool.outputs(shape) if self.pool else shape

    @property
    def tensors(self) -> Mapping[str, str]:
        """For each operand the tensor in memory that it reads."""
        return {**self.source.tensors, **self.weight.tensors}


@dataclass(frozen=True)
class Update:
    """What a buffer is to hold after the call: a number for each row, which the kernel gives that computes the value
    first."""

    name: str
    """Of the tensor that is copied into the buffer."""
    buffer: str
    """The operand that reads what the buffer held; the new value is laid like it."""
    expr: Expr
    """Of reductions and of operands that a row shares."""


@dataclass(frozen=True)
class Lazy:
    """One value."""

    space: Shape
    dims: Dims
    """For each dim of the value the dims of the space that make it up, outermost first; none for one of size 1."""
    operands: tuple[Operand, ...]
    """Tensors it reads, over the space; names are those of tensors in memory, or stand for one (see `tensors`)."""
    expr: Expr
    """Reads operands as tensors and reductions as parameters."""
    dtype: str
    tensors: Mapping[str, str]
    """For each operand the tensor in memory that it reads."""
    columns: frozenset[int] = frozenset()
    """Dims of the space over which its reductions run."""
    reductions: tuple[Reduction, ...] = ()
    per_row: bool = False
    """Whether it has one element for each row: columns then count as dims of size 1."""
    base: Pooling | Convolving | None = None
    """What it starts from, where that is not a tensor in memory."""
    updates: tuple[Update, ...] = ()
    """Of buffers, which come with its reductions."""

    @property
    def shape(self) -> Shape:
        return tuple(math.prod(self.space[d] for d in group if self.is_seen(d)) for group in self.dims)

    def is_seen(self, dim: int) -> bool:
        """Whether elements of the value differ along this dim of the space."""
        return not (self.per_row and dim in self.columns)


def output_dims(value: Lazy) -> tuple[int | None, ...] | None:
    """The dim of the value's space that is each dim of its convolution's output, or of its pool's, None for one of size
    1; None where the space is another one."""
    base = value.base
    assert isinstance(base, Convolving)
    (product,) = (o for o in value.operands if o.name == base.name)
    shape = base.shape
    by_stride = {stride: d for d, stride in enumerate(product.strides) if stride and value.space[d] > 1}
    dims = tuple(None if n == 1 else by_stride.get(s, -1) for n, s in zip(shape, contiguous(shape), strict=True))
    same = all(d is None or (d >= 0 and value.space[d] == n) for d, n in zip(dims, shape, strict=True))
    return dims if same and math.prod(value.space) == math.prod(shape) else None


def is_over_space(value: Lazy, columns: frozenset[int]) -> bool:
    """Whether these are the spatial dims of the output of the convolution that a value starts from, without a pool."""
    dims = output_dims(value) if isinstance(value.base, Convolving) and value.base.pool is None else None
    return dims is not None and {d for d in columns if value.space[d] > 1} == {d for d in dims[2:] if d is not None}


def leaf(name: str, shape: Sequence[int], strides: Sequence[int], dtype: str, bounds: Interval | None = None) -> Lazy:
    """A tensor in memory, whose elements are known to lie within `bounds`."""
    laid = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
    operand = Operand(name, dtype, laid, bounds=bounds)
    dims = whole(shape)
    return Lazy(tuple(shape), dims, (operand,), tensor(name, dtype), dtype, {name: name})


def whole(shape: Sequence[int]) -> Dims:
    """Dims of a value whose space is its own shape."""
    return tuple((d,) if size != 1 else () for d, size in enumerate(shape))


def scalar(expr: Expr, dtype: str) -> Lazy:
    """A number, or an expression of nothing."""
    return Lazy((), (), (), expr, dtype, {})


def split(value: Lazy, dim: int, outer: int) -> Lazy:
    """Dim `dim` of the space becomes two, of `outer` and the rest. Raises CannotJoin where that does not divide it."""
    size = value.space[dim]
    if outer <= 0 or size % outer:
        raise CannotJoin
    inner = size // outer
    space = (*value.space[:dim], outer, inner, *value.space[dim + 1 :])

    def groups(group: Iterable[int]) -> tuple[int, ...]:
        return tuple(x for d in group for x in ((d, d + 1) if d == dim else (d + (d > dim),)))

    operands = tuple(
        replace(o, strides=(*o.strides[:dim], o.strides[dim] * inner, *o.strides[dim:])) for o in value.operands
    )
    columns = frozenset(groups(value.columns))
    return replace(value, space=space, dims=tuple(map(groups, value.dims)), operands=operands, columns=columns)


def permuted(value: Lazy, order: Sequence[int]) -> Lazy:
    """The value with its dims in another order."""
    return replace(value, dims=tuple(value.dims[d] for d in order))


def unsqueezed(value: Lazy, at: int) -> Lazy:
    return replace(value, dims=(*value.dims[:at], (), *value.dims[at:]))


def squeezed(value: Lazy, at: Iterable[int]) -> Lazy:
    """Without those of the dims `at` that are of size 1."""
    gone = {d for d in at if value.shape[d] == 1}
    return replace(value, dims=tuple(group for d, group in enumerate(value.dims) if d not in gone))


def reshaped(value: Lazy, shape: Sequence[int]) -> Lazy:
    """The value with its elements, in their order, in another shape. Raises CannotJoin where dims of the space do not
    divide that way."""
    if value.per_row:
        value = replace(value, dims=tuple(tuple(d for d in group if value.is_seen(d)) for group in value.dims))
    pending = [d for group in value.dims for d in group]
    dims: list[tuple[int, ...]] = []
    for size in shape:
        group: list[int] = []
        while size > 1:
            dim = pending.pop(0)
            if value.space[dim] > size or size % value.space[dim]:
                value = split(value, dim, size)
                pending = [dim + 1, *(d + (d > dim) for d in pending)]
                dims = [tuple(d + (d > dim) for d in each) for each in dims]
                group = [d + (d > dim) for d in group]
            group.append(dim)
            size //= value.space[dim]
        dims.append(tuple(group))
    return replace(value, dims=tuple(dims))
