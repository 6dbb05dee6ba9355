"""Pools as lazy values, and lazy values as pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from crucible.algebra.expression import tensor
from crucible.algebra.pool import POOLED, Pool, Window
from crucible.algebra.program import Operand, Result, contiguous
from crucible.graph import Operation
from crucible.plan import convolutions
from crucible.plan.join import plain, with_own_names
from crucible.plan.lazy import CannotJoin, Convolving, Lazy, NotCovered, Pooling, permuted, whole
from crucible.plan.reductions import Names, mean
from crucible.plan.settle import Settled, read, updated
from crucible.plan.statistics import apart


def _each(given: Any, rank: int) -> tuple[int, ...]:
    """A size for each spatial dim, from one for all or one for each."""
    several = given if isinstance(given, tuple) else (given,)
    return several * rank if len(several) == 1 else several


def _windows(operation: Operation, args: Mapping[str, Any], rank: int) -> tuple[Window, ...]:
    sizes = _each(args["kernel_size"], rank)
    strides = _each(args["stride"] or args["kernel_size"], rank)
    paddings, dilations = _each(args["padding"], rank), _each(args.get("dilation", 1), rank)
    extents, outputs = args["self"].shape[-rank:], operation.outputs[0].tensor.shape[-rank:]
    each = zip(sizes, strides, extents, outputs, paddings, dilations, strict=True)
    return tuple(Window(*numbers) for numbers in each)


def _pool(kind: str, rank: int) -> Callable[[Operation, Mapping[str, Any], Names], Lazy]:
    def rule(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
        include, divisor = args.get("count_include_pad", True), args.get("divisor_override")
        windows = _windows(operation, args, rank)
        return _pooled(operation.name, args["self"], kind, windows, names, include, divisor)

    return rule


def _adaptive(kind: str, rank: int) -> Callable[[Operation, Mapping[str, Any], Names], Lazy]:
    def rule(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
        value = args["self"]
        extents, outputs = value.shape[-rank:], operation.outputs[0].tensor.shape[-rank:]
        if kind == "avg" and set(outputs) == {1}:
            spatial = range(len(value.dims) - rank, len(value.dims))
            return mean(value, [d for d in spatial if value.shape[d] > 1], names)
        largest = [-(-n // out) + (n % out > 1) for n, out in zip(extents, outputs, strict=True)]
        windows = [
            Window(n // out, n // out, n, out) if n % out == 0 else Window(size, 1, n, out, adaptive=True)
            for n, out, size in zip(extents, outputs, largest, strict=True)
        ]
        return _pooled(operation.name, value, kind, tuple(windows), names, True, None)

    return rule


def _pooled(
    word: str,
    value: Lazy,
    kind: str,
    windows: tuple[Window, ...],
    names: Names,
    include: bool,
    divisor: int | None,
) -> Lazy:
    """The pool's value, with the operand `<name>` that stands for it, or as a convolution that pools. Reductions before
    it are taken along where all elements of a window share them."""
    if isinstance(value.base, Convolving):
        inside = convolutions.pooled(value, kind, windows, divisor)
        if inside is not None:
            return inside
    if value.per_row or value.base is not None:
        raise CannotJoin
    before = plain(value)
    spatial = range(len(before.space) - len(windows), len(before.space))
    if before.reductions and not before.columns >= {d for d in spatial if before.space[d] > 1}:
        raise CannotJoin
    name = names(f"{word}_{POOLED}")
    pooling = Pooling(name, kind, before, windows, include, divisor)
    operand, expr = Operand(name, value.dtype, contiguous(pooling.shape)), tensor(name, value.dtype)
    return Lazy(pooling.shape, whole(pooling.shape), (operand,), expr, value.dtype, {name: name}, base=pooling)


MOST_OF_A_DIM = 256
"""Elements that a thread looks at, one after the other; their numbers are bytes."""


def largest(operation: Operation, value: Lazy, dim: int, names: Names) -> Lazy:
    """Of one dim, which stays as one of size 1: a pool of windows that are all of it, which gives the gradient to the
    first of several that are the largest. Raises CannotJoin where the value is no chain of tensors, NotCovered where
    windows side by side are not so in memory."""
    size, *rest = value.shape[dim:]
    if math.prod(rest) == 1 or size > MOST_OF_A_DIM:
        raise NotCovered("a maximum along neighbours in memory, or of many")
    if value.per_row or value.reductions or value.base is not None:
        raise CannotJoin
    if any(operand.strides[-1] > 1 for operand in plain(value).operands):
        raise NotCovered("a maximum along neighbours in memory")
    if len(rest) <= 2:  # which are windows' dims then, and read several at a time
        windows = (Window(size, size, size, 1), *(Window(1, 1, n, n) for n in rest))
        return _pooled(operation.name, value, "max", windows, names, True, None)
    others = [d for d in range(len(value.dims)) if d != dim]
    turned = permuted(value, (*others, dim))
    found = _pooled(operation.name, turned, "max", (Window(size, size, size, 1),), names, True, None)
    return permuted(found, [*range(dim), len(others), *range(dim, len(others))])


def over(value: Lazy, shape: Sequence[int]) -> Lazy:
    """A value seen in a pool's shape, from which it differs by dims of one element; itself where it differs by more."""
    real = [(group, n) for group, n in zip(value.dims, value.shape, strict=True) if n > 1]
    if [n for _, n in real] != [n for n in shape if n > 1]:
        return value
    groups = iter(group for group, _ in real)
    return replace(value, dims=tuple(next(groups) if n > 1 else () for n in shape))


def _spread(strides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Those of dims of more than one element, over all."""
    left = iter(strides)
    return tuple(next(left) if n > 1 else 0 for n in shape)


def settled(value: Lazy, name: str, strides: Sequence[int]) -> Settled:
    """The pool with its chains that writes the value to a tensor `name` laid as `strides` say."""
    pooling = value.base
    assert isinstance(pooling, Pooling)
    outer, shape = pooling.before.shape[: -len(pooling.windows)], pooling.shape
    (after,) = with_own_names((plain(over(value, shape)),), pooling.before.tensors)  # gradients are of both chains
    precision = "float64" if value.dtype == "float64" else "float32"
    inner, program = pooling.before, None
    if inner.reductions:
        inner, program = apart(inner, name, precision)
    before, operands = read(inner, {})
    expr, rest = read(after, {o.leaf: tensor(POOLED) for o in after.operands if o.name == pooling.name})
    pool = Pool(
        name,
        pooling.kind,
        tuple(outer),
        pooling.windows,
        operands,
        before,
        rest,
        Result(
            name, value.dtype, _spread([s for s, n in zip(strides, value.shape, strict=True) if n > 1], shape), expr
        ),
        pooling.count_include_pad,
        pooling.divisor,
        precision,
    )
    found = [*pool.operands, *pool.after_operands, *(program.operands if program else ())]
    held = {**pooling.before.tensors, **after.tensors}
    tensors = {operand.name: held[operand.name] for operand in found if operand.name in held}
    return Settled(pool, tensors, value.shape, tuple(strides), program, updated(pooling.before))


RULES: dict[str, Callable[[Operation, Mapping[str, Any], Names], Lazy]] = {
    f"{word}{kind}_pool{rank}d": (_adaptive if word else _pool)(kind, rank)
    for word in ("", "adaptive_")
    for kind in ("max", "avg")
    for rank in (1, 2, 3)
}
