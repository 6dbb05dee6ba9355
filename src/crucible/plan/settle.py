"""A lazy value as the program that computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crucible.plan.lazy import Lazy, Shape
from crucible.write.expression import substitute
from crucible.write.pool import Pool
from crucible.write.program import Operand, Program, Result, contiguous, reads


@dataclass(frozen=True)
class Settled:
    """A program or pool, and the tensor that it makes."""

    compute: Program | Pool
    tensors: dict[str, str]
    """For each operand the tensor in memory that it reads."""
    shape: Shape
    strides: Shape
    """Of the result, in PyTorch's sense."""


def settled(value: Lazy, name: str, strides: Sequence[int]) -> Settled:
    """The program that writes the value to a tensor `name` of its own, laid as `strides` say (for each dim of its
    shape; dense)."""
    value = _without_idle(value)
    seen = _laid(value, strides)
    order = sorted(range(len(value.space)), key=lambda d: (d in value.columns, -_weight(value, seen, d)))
    shape = tuple(value.space[d] for d in order)
    rows = len(order) - len(value.columns)
    operands = tuple(
        replace(o, strides=tuple(o.strides[d] for d in order), shared=is_shared(o, value.space)) for o in value.operands
    )
    reads = {old.leaf: new.leaf for old, new in zip(value.operands, operands, strict=True)}
    columns = () if value.per_row else tuple(seen[d] for d in order[rows:])
    laid = (*(seen[d] for d in order[:rows]), *columns)
    program = Program(
        name,
        shape,
        rows,
        operands,
        tuple(replace(r, expr=substitute(r.expr, reads)) for r in value.reductions),
        (Result(name, value.dtype, laid, substitute(value.expr, reads)),),
        "float64" if value.dtype == "float64" else "float32",
    )
    tensors = {operand.name: value.tensors[operand.name] for operand in operands}
    return Settled(program, tensors, value.shape, tuple(strides))


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


def _without_idle(value: Lazy) -> Lazy:
    """Without operands that nothing reads any more."""
    wanted = reads(value.expr).union(*(reads(r.expr) for r in value.reductions))
    return replace(value, operands=tuple(o for o in value.operands if o.name in wanted))


def _laid(value: Lazy, strides: Sequence[int]) -> dict[int, int]:
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


def is_shared(operand: Operand, space: Shape) -> bool:
    """Whether elements of the space share elements of the operand."""
    return any(not stride and size > 1 for stride, size in zip(operand.strides, space, strict=True))
