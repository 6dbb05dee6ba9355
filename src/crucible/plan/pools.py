"""Pools as lazy values, and lazy values as pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from crucible.graph import Operation
from crucible.plan.join import expanded
from crucible.plan.lazy import CannotJoin, Lazy, Pooling, whole
from crucible.plan.reductions import Names, mean
from crucible.plan.settle import Settled, is_shared, layout_like
from crucible.write.expression import substitute, tensor
from crucible.write.pool import POOLED, Pool, Window
from crucible.write.program import Operand, Result, contiguous


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
        return _pooled(operation, args["self"], kind, windows, names, include, divisor)

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
        return _pooled(operation, value, kind, tuple(windows), names, True, None)

    return rule


def _pooled(
    operation: Operation,
    value: Lazy,
    kind: str,
    windows: tuple[Window, ...],
    names: Names,
    include: bool,
    divisor: int | None,
) -> Lazy:
    """The pool's value, with the operand `<name>` that stands for it."""
    if value.reductions or value.pooling is not None:
        raise CannotJoin
    before = _plain(value)
    name, shape = names(f"{operation.name}_{POOLED}"), operation.outputs[0].tensor.shape
    operand = Operand(name, value.dtype, contiguous(shape))
    pooling = Pooling(name, kind, before, windows, include, divisor)
    expr = tensor(name, value.dtype)
    return Lazy(tuple(shape), whole(shape), (operand,), expr, value.dtype, {name: name}, pooling=pooling)


def _plain(value: Lazy) -> Lazy:
    """The value over a space that is its own shape. Raises CannotJoin where a dim is made up of several."""
    common = expanded(value, value.shape)
    if any(len(group) > 1 for group in common.dims):
        raise CannotJoin
    at = [group[0] if group else None for group in common.dims]
    operands = tuple(replace(o, strides=tuple(0 if d is None else o.strides[d] for d in at)) for o in common.operands)
    return replace(common, space=value.shape, dims=whole(value.shape), operands=operands)


def fits(value: Lazy) -> bool:
    """Whether the chain after a pool goes over the pool's own output."""
    try:
        return value.pooling is not None and _plain(value).shape == _output_shape(value.pooling)
    except CannotJoin:
        return False


def _output_shape(pooling: Pooling) -> tuple[int, ...]:
    outer = pooling.before.shape[: -len(pooling.windows)]
    return (*outer, *(window.outputs for window in pooling.windows))


def settled(value: Lazy, name: str) -> Settled:
    """The pool with its chains that writes the value to a tensor `name`."""
    pooling, after = value.pooling, _plain(value)
    assert pooling is not None
    outer = pooling.before.shape[: -len(pooling.windows)]
    strides = layout_like(value)
    before, operands = _read(pooling.before)
    expr, rest = _read(after, {pooling.name: tensor(POOLED)})
    operands_after = tuple(o for o in rest if o.name != pooling.name)
    pool = Pool(
        name,
        pooling.kind,
        tuple(outer),
        pooling.windows,
        operands,
        before,
        operands_after,
        Result(name, value.dtype, strides, expr),
        pooling.count_include_pad,
        pooling.divisor,
        "float64" if value.dtype == "float64" else "float32",
    )
    tensors = {**pooling.before.tensors, **{n: held for n, held in after.tensors.items() if n != pooling.name}}
    return Settled(pool, tensors, value.shape, strides)


def _read(value: Lazy, also: Mapping[str, Any] | None = None) -> tuple[Any, tuple[Operand, ...]]:
    """The expression and its operands, those of fewer elements marked as shared."""
    operands = tuple(replace(o, shared=is_shared(o, value.space)) for o in value.operands)
    reads = {old.leaf: new.leaf for old, new in zip(value.operands, operands, strict=True)}
    reads |= {o.leaf: (also or {})[o.name] for o in value.operands if o.name in (also or {})}
    return substitute(value.expr, reads), operands


def alone(value: Lazy) -> Lazy:
    """The pool without the chain after it."""
    assert value.pooling is not None
    shape = _output_shape(value.pooling)
    operand = next(o for o in value.operands if o.name == value.pooling.name)
    laid = Operand(operand.name, operand.dtype, contiguous(shape))
    return Lazy(shape, whole(shape), (laid,), laid.leaf, operand.dtype, {laid.name: laid.name}, pooling=value.pooling)


RULES: dict[str, Callable[[Operation, Mapping[str, Any], Names], Lazy]] = {
    f"{word}{kind}_pool{rank}d": (_adaptive if word else _pool)(kind, rank)
    for word in ("", "adaptive_")
    for kind in ("max", "avg")
    for rank in (1, 2, 3)
}
