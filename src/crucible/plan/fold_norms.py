"""An average behind a norm: of what is normalised, and normalised then. And a norm from which its average is taken.

Once the statistics are known a norm is an affine map of one value a row or channel. They come of the mean and the
variance of each channel of each item, which other channels and items join: the normalised tensor is never made. Less
its average over space the norm is what is normalised less that average, times one number a channel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from crucible.graph import Operation, Ref
from crucible.plan.reduced import Reduced, reduction_of
from crucible.plan.rewriting import Maker, Rewriting

NORMS = ("batch_norm", "group_norm")
HALVES = ("bfloat16", "float16")
"""In these statistics would be written between kernels: a variance of 256 squared leaves float16's range, and so did
gradients of it in level 2's task 15, cotangents 32 times as large."""


def behind_norm(make: Maker, reduced: Reduced, source: Operation) -> str | None:
    """The average over dims of space, or of them and of channels, of a norm that takes its own statistics."""
    given = source.args["input"]
    assert isinstance(given, Ref)
    shape = make.shape(given.name)
    space = tuple(range(2, len(shape)))
    if not _takes_its_own(source) or reduced.share != 1 or 0 in reduced.dims or not {*space} & {*reduced.dims}:
        return None
    if math.prod(shape[d] for d in space) == 1 or make.work.values[given.name].tensor.dtype in HALVES:
        return None
    mean = make.mean(given.name, space)
    spread = _spread(make, given.name, mean, space)
    over = replace(reduced, source=given.name, dims=tuple(d for d in reduced.dims if d > 1))
    value, is_apart = (mean, True) if over.dims == space and not over.windows else reduced.pushed(make, over)
    if reduced.windows and not is_apart:
        return None  # the pool reads the tensor as often as the norm does, and gradients come back in two parts
    less = mean
    if reduced.windows:
        # An average of the weight is rounded otherwise than the weight, and so is what both make of the input's mean,
        # which normalising takes off: by the tensor's own mean level 2's task 72 was 3.4 times as far off as eager's
        # TF32. Where taking the input's does not pay, the pool stays where it is.
        less, of_input = reduced.pushed(make, Reduced(given.name, space, 1))
        if not of_input:
            return None
    normed = _normed(make, source, value, mean, spread, less)
    if normed is None:
        return None
    made = _with(make, source, "add", "bias", _with(make, source, "mul", "weight", normed))
    return make.mean(made, [1]) if 1 in reduced.dims else made


def centred(work: Rewriting, operation: Operation) -> tuple[str, str] | None:
    """A norm less its own mean over space: both read it where it would have to be written, and read again."""
    args = operation.args
    normed, mean = args.get("self"), args.get("other")
    if operation.kind != "sub" or args["alpha"] != 1 or not isinstance(normed, Ref) or not isinstance(mean, Ref):
        return None
    source, averaging = work.graph.producers.get(normed.name), work.alone(mean.name)
    if source is None or averaging is None or source.kind not in NORMS or not _takes_its_own(source):
        return None
    given, readers = source.args["input"], work.graph.readers(normed.name)
    assert isinstance(given, Ref)
    shape, dtype = work.shape(given.name), work.values[given.name].tensor.dtype
    space = tuple(range(2, len(shape)))
    reduced = reduction_of(averaging, work.graph)
    asked = reduced and (reduced.source, reduced.dims, reduced.share, reduced.windows)
    alone = {each.name for each in readers} == {operation.name, averaging.name} and not work.is_kept(normed.name)
    if asked != (normed.name, space, 1, ()) or not alone or dtype in HALVES or math.prod(shape[2:]) == 1:
        return None
    if work.shape(mean.name) != (*shape[:2], *(1 for _ in space)):
        return None
    make = Maker(work, dtype)
    own = make.mean(given.name, space)
    off, spread = make.binary("sub", given.name, own), _spread(make, given.name, own, space)
    scaled = _normed(make, source, off, own, spread, None)
    if scaled is None:
        return None
    made, bias = _with(make, source, "mul", "weight", scaled), source.args["bias"]
    if isinstance(bias, Ref):  # it is taken off with the mean: its gradient is 0
        made = make.binary("add", made, make.nothing(bias.name))
    return made, f"{source.kind} less its mean over space"


def _takes_its_own(source: Operation) -> bool:
    """Whether a norm takes the statistics of what it is given."""
    return source.kind == "group_norm" or source.args["training"] is True


def _spread(make: Maker, given: str, mean: str, space: Sequence[int]) -> str:
    off = make.binary("sub", given, make.detach(mean))  # whose square is least for this mean: it does not move
    return make.mean(make.binary("mul", off, off), space)


def _normed(make: Maker, source: Operation, value: str, mean: str, spread: str, less: str | None) -> str | None:
    """A value as a norm leaves it, without weight and bias, by means of channels of items and squares around them;
    `less` are those means as they are taken off, None where they were."""
    if source.kind == "group_norm":
        return _grouped(make, source, value, mean, spread, less)
    return _batched(make, source, value, mean, spread, less)


def _batched(make: Maker, source: Operation, value: str, mean: str, spread: str, less: str | None) -> str | None:
    """Statistics of a channel in all items; running ones move."""
    momentum, eps, given = source.args["momentum"], source.args["eps"], source.args["input"]
    assert isinstance(eps, float) and isinstance(given, Ref)
    middle = make.mean(mean, [0])
    variance = make.mean(_with_square(make, spread, make.binary("sub", mean, middle)), [0])
    if isinstance(source.args["running_mean"], Ref):
        if not isinstance(momentum, float):
            return None
        shape = make.shape(given.name)
        number = math.prod(shape) // shape[1]
        for word, now in (("running_mean", middle), ("running_var", variance)):
            held = source.args[word]
            assert isinstance(held, Ref)
            now = make.reshape(make.detach(now), (shape[1],))
            part = momentum * number / (number - 1) if word == "running_var" else momentum
            moved = make.binary("mul", held.name, 1 - momentum)
            make.work.update(held.name, make.binary("add", moved, make.binary("mul", now, part)))
        make.work.replaced.add(source.name)
    off = middle if less == mean else less and make.mean(less, [0])
    return _normal(make, value, off, variance, eps)


def _grouped(make: Maker, source: Operation, value: str, mean: str, spread: str, less: str | None) -> str:
    """Statistics of the channels of a group in one item."""
    eps, groups = source.args["eps"], source.args["num_groups"]
    assert isinstance(eps, float) and isinstance(groups, int)
    apart = [_in_groups(make, each, groups) for each in (value, mean, spread)]
    middle = make.mean(apart[1], [2])
    variance = make.mean(_with_square(make, apart[2], make.binary("sub", apart[1], middle)), [2])
    off = middle if less == mean else less and make.mean(_in_groups(make, less, groups), [2])
    normed = _normal(make, apart[0], off, variance, eps)
    return make.reshape(normed, make.shape(value))


def _in_groups(make: Maker, name: str, groups: int) -> str:
    batch, channels, *space = make.shape(name)
    return make.reshape(name, (batch, groups, channels // groups, *space))


def _with_square(make: Maker, term: str, of: str) -> str:
    return make.binary("add", term, make.binary("mul", of, of))


def _normal(make: Maker, value: str, middle: str | None, variance: str, eps: float) -> str:
    off = value if middle is None else make.binary("sub", value, middle)
    return make.binary("mul", off, make.unary("rsqrt", make.binary("add", variance, eps)))


def _with(make: Maker, source: Operation, kind: str, word: str, value: str) -> str:
    """And a parameter of it, of which a channel has one."""
    held = source.args[word]
    if not isinstance(held, Ref):
        return value
    ones = [1] * (len(make.shape(value)) - 2)
    return make.binary(kind, value, make.reshape(held.name, (*make.shape(held.name), *ones)))
