"""Operations that leave elements as they are, as lazy values: other shapes, dims in another order, repetition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crucible.graph import DROPOUTS, Operation
from crucible.plan.join import expanded
from crucible.plan.lazy import Lazy, permuted, reshaped, squeezed, unsqueezed
from crucible.plan.reductions import Names


def _reshape(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    return reshaped(args["self"], operation.outputs[0].tensor.shape)


def _same(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    return args["self"]  # type: ignore[no-any-return]


def _not_dropped(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    return args["input"]  # type: ignore[no-any-return]


def _permute(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    rank = len(args["self"].dims)
    return permuted(args["self"], [d % rank for d in args["dims"]])


def _transpose(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    rank = len(args["self"].dims)
    order = list(range(rank))
    dims = [args[name] % rank for name in ("dim0", "dim1", "axis0", "axis1") if name in args]
    a, b = dims or (0, rank - 1)
    order[a], order[b] = order[b], order[a]
    return permuted(args["self"], order)


def _turned(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    return permuted(args["self"], range(len(args["self"].dims))[::-1])


def _movedim(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    rank = len(args["self"].dims)
    source, destination = ([d % rank for d in _each(args[name])] for name in ("source", "destination"))
    to = dict(zip(destination, source, strict=True))
    others = (d for d in range(rank) if d not in source)
    return permuted(args["self"], [to[d] if d in to else next(others) for d in range(rank)])


def _each(given: Any) -> tuple[int, ...]:
    return given if isinstance(given, tuple) else (given,)


def _unsqueeze(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    return unsqueezed(args["self"], args["dim"] % (len(args["self"].dims) + 1))


def _squeeze(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    rank = len(args["self"].dims)
    dims = args.get("dim", tuple(range(rank)))
    return squeezed(args["self"], [d % rank for d in (dims if isinstance(dims, tuple) else (dims,))])


def _expand(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    return expanded(args["self"], operation.outputs[0].tensor.shape)


VIEWS: dict[str, Callable[[Operation, Mapping[str, Any], Names], Lazy]] = {
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "_unsafe_view", "view_as", "reshape_as"), _reshape),
    **dict.fromkeys(("contiguous", "clone", "alias"), _same),
    **dict.fromkeys(DROPOUTS, _not_dropped),
    "permute": _permute,
    **dict.fromkeys(("transpose", "t", "swapdims", "swapaxes"), _transpose),
    "numpy_T": _turned,
    **dict.fromkeys(("movedim", "moveaxis"), _movedim),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    **dict.fromkeys(("expand", "expand_as"), _expand),
}
"""PyTorch has them without a kernel, or nearly."""


def _pixel_shuffle(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    """[*, C r r, H, W] to [*, C, H r, W r]."""
    value, r = args["self"], args["upscale_factor"]
    *outer, channels, height, width = value.shape
    apart, n = reshaped(value, (*outer, channels // (r * r), r, r, height, width)), len(outer)
    turned = permuted(apart, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshaped(turned, operation.outputs[0].tensor.shape)


def _pixel_unshuffle(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    """[*, C, H r, W r] to [*, C r r, H, W]."""
    value, r = args["self"], args["downscale_factor"]
    *outer, channels, height, width = value.shape
    apart, n = reshaped(value, (*outer, channels, height // r, r, width // r, r)), len(outer)
    turned = permuted(apart, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshaped(turned, operation.outputs[0].tensor.shape)


def _channel_shuffle(operation: Operation, args: Mapping[str, Any], names: Names) -> Lazy:
    """[N, G C, *] to [N, C G, *]."""
    value, groups = args["self"], args["groups"]
    batch, channels, *space = value.shape
    apart = reshaped(value, (batch, groups, channels // groups, *space))
    turned = permuted(apart, (0, 2, 1, *range(3, len(apart.dims))))
    return reshaped(turned, value.shape)


SHUFFLES: dict[str, Callable[[Operation, Mapping[str, Any], Names], Lazy]] = {
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    "channel_shuffle": _channel_shuffle,
}
