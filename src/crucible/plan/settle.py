"""A lazy value as the program that computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution
from crucible.algebra.expression import Expr, substitute
from crucible.algebra.pool import Pool
from crucible.algebra.program import Operand, Program, Result, contiguous, reads
from crucible.plan.lazy import Lazy, Shape


@dataclass(frozen=True)
class Settled:
    """A program or pool, and the tensor that it makes."""

    compute: Program | Pool | Convolution | ReducingConvolution
    tensors: dict[str, str]
    """For each operand the tensor in memory that it reads."""
    shape: Shape
    strides: Shape
    """Of the result, in PyTorch's sense."""
    statistics: Program | None = None
    """What comes before a pool: numbers that rows share, as results that its chain reads."""
    updates: dict[str, str] = field(default_factory=dict)
    """For each further result the tensor in memory, a buffer, that it is copied into."""


def settled(value: Lazy, name: str, strides: Sequence[int]) -> Settled:
    """The program that writes the value to a tensor `name` of its own, laid as `strides` say (for each dim of its
    shape; dense)."""
    value = _without_idle(value, value.expr)
    seen = laid(value, strides)
    order = sorted(range(len(value.space)), key=lambda d: (d in value.columns, -_weight(value, seen, d)))
    rows = len(order) - len(value.columns)
    columns = () if value.per_row else tuple(seen[d] for d in order[rows:])
    result = Result(name, value.dtype, (*(seen[d] for d in order[:rows]), *columns), value.expr)
    program = programmed(value, name, order, [result])
    tensors = {operand.name: value.tensors[operand.name] for operand in program.operands}
    return Settled(program, tensors, value.shape, tuple(strides), None, updated(value))


def updated(value: Lazy) -> dict[str, str]:
    """The results for its updates, and the buffers that get them."""
    return {update.name: value.tensors[update.buffer] for update in value.updates}


def programmed(value: Lazy, name: str, order: Sequence[int], results: Sequence[Result]) -> Program:
    """The program over the dims of a value's space in an order that begins with rows, for results that read what the
    value reads; its updates are further ones."""
    value = _without_idle(value, *(result.expr for result in results))
    rows = len(order) - len(value.columns)
    operands = tuple(
        replace(o, strides=tuple(o.strides[d] for d in order), shared=is_shared(o, value.space)) for o in value.operands
    )
    by_name = {operand.name: operand for operand in operands}
    buffers = [by_name[update.buffer] for update in value.updates]
    updates = [Result(u.name, b.dtype, b.strides[:rows], u.expr) for u, b in zip(value.updates, buffers, strict=True)]
    leaves = {old.leaf: new.leaf for old, new in zip(value.operands, operands, strict=True)}
    return Program(
        name,
        tuple(value.space[d] for d in order),
        rows,
        operands,
        tuple(replace(r, expr=substitute(r.expr, leaves)) for r in value.reductions),
        tuple(replace(r, expr=substitute(r.expr, leaves)) for r in (*results, *updates)),
        "float64" if value.dtype == "float64" else "float32",
    )


def layout_like(value: Lazy) -> Shape:
    """The strides for a value that is best laid like the largest tensor it reads: PyTorch's own rule, and the one that
    lets reads and writes run side by side."""
    full = [o for o in value.operands if all(o.strides[d] for d in _real(value))]
    if not full or value.per_row:
        return contiguous(value.shape)
    order = sorted(_real(value), key=lambda d: -full[0].strides[d])
    dense = dict(zip(order, contiguous([value.space[d] for d in order]), strict=True))
    strides, step = [], 1
    for group, size in zip(reversed(value.dims), reversed(value.shape), strict=True):
        inner = [dense[d] for d in group if d in dense]
        outer = [value.space[d] for d in group if d in dense]
        whole = all(inner[i] == inner[i + 1] * outer[i + 1] for i in range(len(inner) - 1))
        if not whole:
            return contiguous(value.shape)
        strides.append(inner[-1] if inner else step)
        step = strides[-1] * size
    return tuple(reversed(strides))


def _real(value: Lazy) -> list[int]:
    return [d for group in value.dims for d in group if value.space[d] != 1]


def _without_idle(value: Lazy, *exprs: Expr) -> Lazy:
    """Without operands that neither these nor reductions and updates read any more."""
    inner = [*(reduction.expr for reduction in value.reductions), *(update.expr for update in value.updates)]
    wanted = frozenset[str]().union(*map(reads, (*exprs, *inner)))
    return replace(value, operands=tuple(o for o in value.operands if o.name in wanted))


def laid(value: Lazy, strides: Sequence[int]) -> dict[int, int]:
    """The result's stride along each dim of the space."""
    found = dict.fromkeys(range(len(value.space)), 0)
    for group, stride in zip(value.dims, strides, strict=True):
        step = stride
        for d in reversed(group):
            if value.is_seen(d):
                found[d] = step
                step *= value.space[d]
    return found


def _weight(value: Lazy, seen: dict[int, int], dim: int) -> int:
    """Dims go from the outermost to the innermost of the result; columns that it lacks, of what is read."""
    if value.is_seen(dim) and seen[dim]:
        return seen[dim]
    return max((o.strides[dim] for o in value.operands), default=0)


def read(value: Lazy, also: Mapping[Expr, Expr]) -> tuple[Expr, tuple[Operand, ...]]:
    """The expression and the operands it reads, those of fewer elements marked as shared; `also` says what else to
    put in the stead of what."""
    shared = {o.leaf: replace(o, shared=is_shared(o, value.space)) for o in value.operands}
    expr = substitute(value.expr, {**{leaf: o.leaf for leaf, o in shared.items()}, **also})
    wanted = reads(expr)
    return expr, tuple(operand for operand in shared.values() if operand.name in wanted)


def is_shared(operand: Operand, space: Shape) -> bool:
    """Whether elements of the space share elements of the operand."""
    return any(not stride and size > 1 for stride, size in zip(operand.strides, space, strict=True))
