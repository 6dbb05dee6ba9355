"""An average pool behind a convolution is a convolution with strides.

Behind a plain one, windows of P outputs read k + P - 1 inputs: the kernel is the average of its own shifts. Behind a
transposed one of stride s a pool of stride m s reads a few inputs at a stride of m, each by the average of the taps
that lead from it into the window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from crucible.graph import Operation, Ref
from crucible.plan.fold_space import Axis, axes_of
from crucible.plan.reduced import Averaged, Reduced
from crucible.plan.rewriting import Maker
from crucible.schedule import pays


class Pooled(NamedTuple):
    """A convolution and a pool along one dim as a convolution."""

    kernel: int
    stride: int
    padding: int
    before: int
    """Zeros in front of the kernel, turned round where it was transposed, of which windows are averaged."""
    after: int
    step: int
    """From one of these windows to the next."""


def into_kernel(make: Maker, reduced: Reduced, source: Operation) -> str | None:
    """The pooled value; None where it is no such convolution, or one that takes longer."""
    axes, turned = axes_of(make, source), "transpose" in source.kind
    if axes is None or len(reduced.windows) != len(axes):
        return None
    pairs = list(zip(axes, reduced.windows, strict=True))
    found = [_turned(axis, pool) if turned else _plain(axis, pool) for axis, pool in pairs]
    each = [one for one in found if one is not None]
    if len(each) < len(found):
        return None
    if not pays.pooled_kernel_pays(make.machine, _share(pairs, each, turned=turned)):
        return None
    given, weight, bias = (source.args[name] for name in ("input", "weight", "bias"))
    assert isinstance(given, Ref) and isinstance(weight, Ref)
    kernel = weight.name
    if turned:
        space = range(2, len(axes) + 2)
        kernel = make.permute(make.flip(kernel, space), (1, 0, *space))
    kernel = make.padded(kernel, [one.before for one in each], [one.after for one in each])
    kernel = make.pool(kernel, [pool.size for pool in reduced.windows], [one.step for one in each])
    options = {
        "stride": [one.stride for one in each],
        "padding": [one.padding for one in each],
        "dilation": [1] * len(axes),
    }
    term = bias.name if isinstance(bias, Ref) else None
    return make.convolution(f"conv{len(axes)}d", given.name, kernel, term, options)


def _share(pairs: Sequence[tuple[Axis, Averaged]], each: Sequence[Pooled], *, turned: bool) -> float:
    """Of the multiply-adds of the convolution."""
    before = [axis.kernel * pool.stride / (axis.stride if turned else 1) for axis, pool in pairs]
    return math.prod(one.kernel for one in each) / math.prod(before)


def _plain(axis: Axis, pool: Averaged) -> Pooled | None:
    if axis.stride != 1 or axis.dilation != 1:
        return None
    around = pool.size - 1
    return Pooled(axis.kernel + around, pool.stride, axis.padding, around, around, 1)


def _turned(axis: Axis, pool: Averaged) -> Pooled | None:
    """Input m q + e reaches window q by the taps t for which 0 <= e s + t - padding < P."""
    if axis.dilation != 1 or pool.stride % axis.stride:
        return None
    stride = pool.stride // axis.stride
    first = min(0, -((axis.kernel - 1 - axis.padding) // axis.stride))
    last = (axis.padding + pool.size - 1) // axis.stride
    kernel = last - first + 1
    before = pool.size + axis.padding - axis.kernel - axis.stride * first
    after = pool.size + axis.stride * (kernel - 1) - before - axis.kernel
    outputs = (axis.outputs - pool.size) // pool.stride + 1
    if (axis.inputs - 2 * first - kernel) // stride + 1 != outputs:
        return None
    return Pooled(kernel, stride, -first, before, after, axis.stride)
