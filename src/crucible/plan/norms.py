"""The parts of norms that are no reductions: shapes, statistics that are given, weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from crucible.plan.join import combined, joined, merged
from crucible.plan.lazy import Lazy, NotCovered, Update, reshaped
from crucible.plan.reductions import Names, count, moments, without_shifts

_EPS = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def default_eps(dtype: str) -> float:
    """What PyTorch's rms_norm takes where none is given: of the input's dtype, of float32 for the narrow ones."""
    return _EPS[dtype] if dtype == "float64" else _EPS["float32"]


def trailing(value: Lazy, shape: Sequence[int]) -> list[int]:
    """The dims of a normalized_shape; raises NotCovered where there is nothing to normalise over."""
    if math.prod(shape) == 1:
        raise NotCovered("a norm over one element")
    return list(range(len(value.dims) - len(shape), len(value.dims)))


def grouped(value: Lazy, groups: int) -> Lazy:
    """(batch, channels, ...) as (batch, groups, channels of a group, ...)."""
    batch, channels, *rest = value.shape
    return reshaped(value, (batch, groups, channels // groups, *rest))


def of_channels(value: Lazy, rank: int) -> Lazy:
    """A tensor with an element for each channel, as it broadcasts over (batch, channels, ...)."""
    return reshaped(value, [value.shape[0] if d == 1 else 1 for d in range(rank)])


def scaled(value: Lazy, weight: Lazy | None, bias: Lazy | None) -> Lazy:
    """The affine end of a norm; weight and bias broadcast as they are."""
    if weight is not None:
        value = combined(lambda x, w: x * w, value, weight)
    return value if bias is None else combined(lambda x, b: x + b, value, bias)


def scaled_channels(value: Lazy, weight: Lazy | None, bias: Lazy | None) -> Lazy:
    rank = len(value.dims)
    both = [None if each is None else of_channels(each, rank) for each in (weight, bias)]
    return scaled(value, *both)


def with_statistics(args: Mapping[str, Any]) -> Lazy:
    """Batch norm with given mean and variance: per channel a factor and a term, which parameters alone decide."""
    value, rank, eps = args["input"], len(args["input"].dims), args["eps"]
    mean, variance = (of_channels(args[name], rank) for name in ("running_mean", "running_var"))
    normal = combined(lambda x, m, v: (x - m) * (v + eps).rsqrt(), value, mean, variance)
    return scaled_channels(normal, args.get("weight"), args.get("bias"))


def with_own_statistics(args: Mapping[str, Any], names: Names) -> Lazy:
    """Batch norm in training: rows are channels. Running statistics come along as updates, where there are any.

    What is added to a whole channel before, as the bias of a convolution is, the norm takes away: only the running
    mean reads it, and its gradient is 0 (PyTorch computes the roundings of that)."""
    value, eps = args["input"], args["eps"]
    rank = len(value.dims)
    dims = [d for d in range(rank) if d != 1]
    number = count(value, dims)
    if number == 1:
        raise NotCovered("batch_norm in training over one element")
    shifts: list[Lazy] = []
    if args.get("running_mean") is not None:  # else no operator would read a bias, and it would get no gradient
        value, shifts = without_shifts(value, dims)
    less, mean, variance = moments(value, dims, names)
    mean = combined(lambda m, *added: sum(added, m), mean, *shifts)
    normal = combined(lambda x, v: x * (v + eps).rsqrt(), less, variance)
    unbiased = combined(lambda v: v * (number / (number - 1)), variance)
    for word, new in (("running_mean", mean), ("running_var", unbiased)):
        if args.get(word) is not None:
            normal = _updating(normal, of_channels(args[word], rank), new, args["momentum"], names)
    return scaled_channels(normal, args.get("weight"), args.get("bias"))


def _updating(value: Lazy, buffer: Lazy, new: Lazy, momentum: float, names: Names) -> Lazy:
    """The value, with the buffer moved towards what it is of this batch."""
    moved = combined(lambda old, now: old * (1 - momentum) + now * momentum, buffer, new)
    common, running = joined((value, moved))
    (operand,) = (o for o in running.operands if running.tensors[o.name] == buffer.tensors[buffer.operands[0].name])
    update = Update(names(f"new_{operand.name}"), operand.name, running.expr)
    both = merged((common, running), common.expr, value.dtype)
    return replace(both, updates=(*both.updates, update))
