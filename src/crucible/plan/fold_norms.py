"""An average behind a norm: of what is normalised, and normalised then.

Once the statistics are known a norm is an affine map of one value a row or channel. They come of the mean and the
variance of each channel of each item, which other channels and items join: the normalised tensor is never made.
"""

from __future__ import annotations

import math
from dataclasses import replace

from crucible.graph import Operation, Ref
from crucible.plan.reduced import Reduced
from crucible.plan.rewriting import Maker


def behind_norm(make: Maker, reduced: Reduced, source: Operation) -> str | None:
    """The average over dims of space, or of them and of channels, of a norm that takes its own statistics."""
    given = source.args["input"]
    assert isinstance(given, Ref)
    shape = make.shape(given.name)
    space = tuple(range(2, len(shape)))
    own = source.kind == "group_norm" or source.args["training"] is True
    if not own or reduced.share != 1 or 0 in reduced.dims or not {*space} & {*reduced.dims}:
        return None
    if math.prod(shape[d] for d in space) == 1 or make.work.values[given.name].tensor.dtype == "bfloat16":
        return None
    mean, is_apart = reduced.pushed(make, Reduced(given.name, space, 1))
    if reduced.windows and not is_apart:
        return None  # the pool reads the tensor as often as the mean does, and gradients come back in two parts
    off = make.binary("sub", given.name, make.detach(mean))  # whose square is least for this mean: it does not move
    spread = make.mean(make.binary("mul", off, off), space)
    over = replace(reduced, source=given.name, dims=tuple(d for d in reduced.dims if d > 1))
    value = mean if over.dims == space and not over.windows else reduced.pushed(make, over)[0]
    normed = (_grouped if source.kind == "group_norm" else _batched)(make, source, value, mean, spread)
    if normed is None:
        return None
    made = _affine(make, source, normed)
    return make.mean(made, [1]) if 1 in reduced.dims else made


def _batched(make: Maker, source: Operation, value: str, mean: str, spread: str) -> str | None:
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
    return _normal(make, value, middle, variance, eps)


def _grouped(make: Maker, source: Operation, value: str, mean: str, spread: str) -> str:
    """Statistics of the channels of a group in one item."""
    eps, groups = source.args["eps"], source.args["num_groups"]
    assert isinstance(eps, float) and isinstance(groups, int)
    apart = [_in_groups(make, each, groups) for each in (value, mean, spread)]
    middle = make.mean(apart[1], [2])
    variance = make.mean(_with_square(make, apart[2], make.binary("sub", apart[1], middle)), [2])
    return make.reshape(_normal(make, apart[0], middle, variance, eps), make.shape(value))


def _in_groups(make: Maker, name: str, groups: int) -> str:
    batch, channels, *space = make.shape(name)
    return make.reshape(name, (batch, groups, channels // groups, *space))


def _with_square(make: Maker, term: str, of: str) -> str:
    return make.binary("add", term, make.binary("mul", of, of))


def _normal(make: Maker, value: str, middle: str, variance: str, eps: float) -> str:
    return make.binary("mul", make.binary("sub", value, middle), make.unary("rsqrt", make.binary("add", variance, eps)))


def _affine(make: Maker, source: Operation, value: str) -> str:
    """The norm's weight and bias, of which a channel has one."""
    for kind, word in (("mul", "weight"), ("add", "bias")):
        held = source.args[word]
        if isinstance(held, Ref):
            ones = [1] * (len(make.shape(value)) - 2)
            value = make.binary(kind, value, make.reshape(held.name, (*make.shape(held.name), *ones)))
    return value
