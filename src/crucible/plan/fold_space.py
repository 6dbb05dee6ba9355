"""A mean over dims of space behind a convolution is one over dims of its input, for each tap of the kernel.

Along a dim each tap reads, over all outputs, a run of the input: all of it but for a few places at its ends. So the sum
over outputs is a product of the weight with the sums of runs, of which there are as many as taps, or one where all taps
read all. What is left of the dims of space is convolved as before; each tap of the dims that are gone is a channel of
its own then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from crucible.graph import Operation, Ref
from crucible.plan.reduced import Reduced
from crucible.plan.rewriting import Maker
from crucible.schedule import pays


class Axis(NamedTuple):
    """A convolution along one dim of space."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    more: int
    """Output padding."""


class Run(NamedTuple):
    """Of the places along a dim those that are added up: all but some at its ends."""

    head: int
    tail: int


def axes_of(make: Maker, source: Operation) -> list[Axis] | None:
    """The dims of space; None for groups, for padding by name and without a batch."""
    args, rank = source.args, int(source.kind[-2])
    given, weight = args["input"], args["weight"]
    assert isinstance(given, Ref) and isinstance(weight, Ref)
    inputs, outputs = make.shape(given.name), source.outputs[0].tensor.shape
    if args["groups"] != 1 or isinstance(args["padding"], str) or len(inputs) != rank + 2:
        return None
    options = [_each(args.get(name, 0), rank) for name in ("stride", "padding", "dilation", "output_padding")]
    sizes = zip(inputs[2:], outputs[2:], make.shape(weight.name)[2:], *options, strict=True)
    return [Axis(*numbers) for numbers in sizes]


def _each(given: Any, rank: int) -> Sequence[int]:
    several = given if isinstance(given, tuple) else (given,)
    return several * rank if len(several) == 1 else several


def into_input(make: Maker, reduced: Reduced, source: Operation) -> str | None:
    """The mean or sum over dims of space; of channels and of the batch there is none."""
    axes, turned = axes_of(make, source), "transpose" in source.kind
    if axes is None or any(d < 2 for d in reduced.dims):
        return None
    runs = {d: _runs(axes[d - 2], turned=turned) for d in reduced.dims}
    if not all(runs.values()) or all(axes[d - 2].outputs <= axes[d - 2].kernel for d in reduced.dims):
        return None
    kernels = _kernels([run for run in runs.values() if run])
    if not pays.launches_pay(make.machine, kernels, source.outputs[0].tensor.bytes):
        return None
    given, weight, bias = (source.args[name] for name in ("input", "weight", "bias"))
    assert isinstance(given, Ref) and isinstance(weight, Ref)
    sums = _added(make, given.name, {d: run for d, run in runs.items() if run})
    share = reduced.share / math.prod(axes[d - 2].outputs for d in reduced.dims)
    found = _product(make, sums, weight.name, axes, reduced.dims, share, turned=turned)
    if not isinstance(bias, Ref):
        return found
    term = make.reshape(bias.name, (*make.shape(bias.name), *[1] * len(axes)))
    term = term if reduced.share == 1 else make.binary("mul", term, float(reduced.share))
    return make.binary("add", found, term)


def _runs(axis: Axis, *, turned: bool) -> list[Run] | None:
    """For each tap what it reads; None where that is no run, or far from all."""
    runs = [run for tap in range(axis.kernel) if (run := _run(axis, tap, turned=turned)) is not None]
    far = any(2 * (run.head + run.tail) > axis.inputs for run in runs)
    return None if far or len(runs) < axis.kernel else runs


def _run(axis: Axis, tap: int, *, turned: bool) -> Run | None:
    start = tap * axis.dilation - axis.padding
    if turned:  # output q is input j where q = j stride + start
        first, last = -(start // axis.stride), (axis.outputs - 1 - start) // axis.stride
    elif axis.stride == 1:
        first, last = start, start + axis.outputs - 1
    else:
        return None
    return Run(max(0, first), max(0, axis.inputs - 1 - last))


def _kernels(runs: Sequence[Sequence[Run]]) -> int:
    """How many small ones cut places off: for each end a copy, a sum and a difference, and two along each dim."""
    ends = [sum((run.head > 0) + (run.tail > 0) for run in set(each)) for each in runs]
    return sum(2 + 3 * each for each in ends if each)


def _added(make: Maker, given: str, runs: dict[int, list[Run]]) -> str:
    """Sums of runs: along each of the dims as many as taps, or one where all are the same."""
    whole = [d for d, each in runs.items() if set(each) == {Run(0, 0)}]
    found = make.total(given, whole) if whole else given
    for d in sorted(runs.keys() - set(whole), reverse=True):
        full, n = make.apart(make.total(found, [d])), make.shape(found)[d]
        parts = {run: _cut(make, found, full, d, n, run) for run in dict.fromkeys(runs[d])}
        found = make.cat([parts[run] for run in runs[d]], d) if len(parts) > 1 else parts[runs[d][0]]
    return found


def _cut(make: Maker, given: str, full: str, dim: int, n: int, run: Run) -> str:
    """The sum of a run: of all, less what lies at its ends."""
    for start, end in ((0, run.head), (n - run.tail, n)):
        if start < end:
            full = make.binary("sub", full, make.total(make.slice(given, dim, start, end), [dim]))
    return full


def _product(
    make: Maker, sums: str, weight: str, axes: list[Axis], dims: Sequence[int], share: float, *, turned: bool
) -> str:
    """What the weight makes of sums of runs, times `share`; dims that are gone have one element."""
    once = [d for d in dims if make.shape(sums)[d] == 1 and make.shape(weight)[d] > 1]
    weight = make.total(weight, once) if once else weight
    weight = weight if share == 1 else make.binary("mul", weight, share)
    left = [d for d in range(2, len(axes) + 2) if d not in dims]
    taps = math.prod(make.shape(sums)[d] for d in dims)
    batch, channels = make.shape(sums)[:2]
    made = make.shape(weight)[1 if turned else 0]
    if dims[-1] - dims[0] + 3 > len(dims) + 2 or dims[0] > 2:
        sums = make.permute(sums, (0, 1, *dims, *left))
    space = [axes[d - 2] for d in left]
    sums = make.reshape(sums, (batch, channels * taps, *(axis.inputs for axis in space)))
    order = ((0, *dims, 1, *left) if left else (1, 0, *dims)) if turned else (0, 1, *dims, *left)
    weight = weight if order == tuple(range(len(order))) else make.permute(weight, order)
    rows = (channels * taps, made) if turned and left else (made, channels * taps)
    weight = make.reshape(weight, (*rows, *(axis.kernel for axis in space)))
    found = _convolved(make, sums, weight, space, turned=turned) if left else _multiplied(make, sums, weight)
    outputs = {d: axes[d - 2].outputs for d in left}
    return make.reshape(found, (batch, made, *(outputs.get(d, 1) for d in range(2, len(axes) + 2))))


def _convolved(make: Maker, given: str, weight: str, space: list[Axis], *, turned: bool) -> str:
    options = {
        "stride": [axis.stride for axis in space],
        "padding": [axis.padding for axis in space],
        "dilation": [axis.dilation for axis in space],
        "output_padding": [axis.more for axis in space],
    }
    return make.convolution(f"conv{'_transpose' * turned}{len(space)}d", given, weight, None, options)


def _multiplied(make: Maker, rows: str, weight: str) -> str:
    """A small product of (batch, features) with (outputs, features)."""
    (batch, features), outputs = make.shape(rows), make.shape(weight)[0]
    if not pays.small_product_pays(make.machine, batch * outputs * features):
        return make.linear(rows, weight, None)
    products = make.binary("mul", make.reshape(rows, (batch, 1, features)), weight)
    return make.reshape(make.total(products, [2]), (batch, outputs))
