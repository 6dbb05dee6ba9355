"""What kernels are known to mistake in operations with windows and products: convolutions, pools, padding, matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from crucible.judge.diagnosis.edits import (
    LIKELY,
    POSSIBLE,
    ROUNDINGS,
    Around,
    Edit,
    around,
    first,
    first_result,
    operand,
    operands,
    through,
)
from crucible.judge.oracle.recorded import Call, Recording, Run, Slot, Step

_TILES = (4, 8, 16, 32, 64, 128)
"""Usual lengths of a tile of a product's sum: what they do not divide is often left out."""


def convolution(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """The weight's layout, a flipped kernel, bias, padding, roundings."""
    name, weight = step.name, operand(recording, step, "weight")
    read = "[in, out, ...]" if name == "conv" else "[out, in, ...]"
    yield around(index, f"{weight} read as if laid out {read}", through(_relaid, "weight"))
    if any(size > 1 for size in operands(recording, step)["weight"].shape[2:]):
        yield around(index, f"the kernel of {name} flipped", through(_flipped, "weight"))
    if step.args["bias"] is not None:
        yield around(index, f"the bias of {name} left out", lambda call, run: run({**call, "bias": None}))
        words = f"the bias of {name} read at its first element only"
        yield around(index, words, through(lambda bias: bias[:1].expand_as(bias), "bias"), POSSIBLE)
    ins = 0 if step.args["transposed"] else 1
    channels = operands(recording, step)["weight"].shape[ins]
    if channels > 1 and (ins or step.args["groups"] == 1):
        words = f"the last of {channels} input channels of {name} left out"
        yield around(index, words, through(_without_last(ins, 1), "weight"), POSSIBLE)
    if any(step.args["padding"]):
        ignored = _transposed_padding_ignored if step.args["transposed"] else _padding_ignored
        yield around(index, f"the padding of {name} ignored", ignored)
    if any(step.args["padding"]) and not step.args["transposed"]:
        for mode in ("replicate", "reflect", "circular"):
            yield around(index, f"{mode} padding in {name} in place of zeros", _with_padding(mode), POSSIBLE)
    yield from _rounded_operands(index, name, "input", "weight")


def _relaid(weight: torch.Tensor) -> torch.Tensor:
    """The same memory with its leading two dimensions in the other order."""
    one, two, *rest = weight.shape
    return weight.reshape(two, one, *rest).transpose(0, 1)


def _without_last(dim: int, count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Zeros at the last `count` indices of a dimension: a sum over it ends before them."""

    def change(x: torch.Tensor) -> torch.Tensor:
        kept = x.narrow(dim, 0, x.shape[dim] - count)
        return torch.cat([kept, torch.zeros_like(x.narrow(dim, 0, count))], dim)

    return change


def _flipped(weight: torch.Tensor) -> torch.Tensor:
    return weight.flip(list(range(2, weight.dim())))


def _per_dim(value: list[int], dims: int) -> list[int]:
    return list(value) * dims if len(value) == 1 else list(value)


def _pads(before: list[int], after: list[int]) -> list[int]:
    """As `F.pad` wants them: last dimension first."""
    return [size for pair in zip(reversed(before), reversed(after), strict=True) for size in pair]


def _padding_ignored(call: Call, run: Run) -> Any:
    """Windows start at the element itself, and what they lack at the end is zero."""
    x = call["input"]
    padding = _per_dim(call["padding"], x.dim() - 2)
    longer = F.pad(x, _pads([0] * len(padding), [2 * p for p in padding]))
    return run({**call, "input": longer, "padding": [0] * len(padding)})


def _transposed_padding_ignored(call: Call, run: Run) -> Any:
    """The output starts where it would without padding, and is as long as with it."""
    padding = _per_dim(call["padding"], call["input"].dim() - 2)
    whole = run({**call, "padding": [0] * len(padding)})
    for dim, p in enumerate(padding, start=2):
        whole = whole.narrow(dim, 0, whole.shape[dim] - 2 * p)
    return whole


def _with_padding(mode: str) -> Around:
    def change(call: Call, run: Run) -> Any:
        padding = _per_dim(call["padding"], call["input"].dim() - 2)
        padded = F.pad(call["input"], _pads(padding, padding), mode=mode)
        return run({**call, "input": padded, "padding": [0] * len(padding)})

    return change


def _rounded_operands(index: int, name: str, *arguments: str) -> Iterator[Edit]:
    for to, rounded in ROUNDINGS.items():
        words = f"the operands of {name} rounded to {to}"
        yield around(index, words, through(rounded, *arguments), POSSIBLE, rounds=True)


def padding(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """An operation that only pads: its mode, its sides."""
    sizes = list(step.args["pad" if "pad" in step.args else "padding"])
    for mode in ("constant", "replicate", "reflect", "circular"):
        yield around(index, f"{mode} padding in place of {step.name}", _padded(sizes, mode))
    other = [size for i in range(0, len(sizes), 2) for size in (sizes[i + 1], sizes[i])]
    if other != sizes:
        yield around(index, "padding on the other side", _padded(other, "constant"))


def _padded(sizes: list[int], mode: str) -> Around:
    return lambda call, run: F.pad(call["self"], sizes, mode=mode)


def product(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """A matrix product: roundings, what is added to it, the second matrix's layout."""
    names = (("mat1", "mat2"), ("batch1", "batch2"), ("self", "mat2"))
    left, right = next(pair for pair in names if pair[0] in step.args)
    yield from _rounded_operands(index, step.name, left, right)
    if "beta" in step.args:
        added = operand(recording, step, "self")
        yield around(index, f"{added} left out of {step.name}", through(torch.zeros_like, "self"))
    matrix = operand(recording, step, right)
    words = f"{matrix} read with rows and columns exchanged in {step.name}"
    yield around(index, words, through(_columns_first, right))
    terms = operands(recording, step)[left].shape[-1]
    for rest in sorted({1, *(terms % tile for tile in _TILES)} - {0, terms}):
        words = f"the last {rest} of {terms} terms of each sum of {step.name} left out"
        yield around(index, words, through(_without_last(-1, rest), left), POSSIBLE)


def _columns_first(matrix: torch.Tensor) -> torch.Tensor:
    *batch, rows, columns = matrix.shape
    return matrix.reshape(*batch, columns, rows).transpose(-1, -2)


def attention(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """Its scale, its mask."""
    if "scale" in step.args and step.args["scale"] != 1.0:
        yield around(index, "attention without its scale", lambda call, run: run({**call, "scale": 1.0}))
    for mask in ("attn_mask", "attn_bias"):
        if isinstance(step.args.get(mask), Slot):
            yield around(index, "attention without its mask", _without(mask))


def _without(argument: str) -> Around:
    return lambda call, run: run({**call, argument: None})


def pool(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """A maximum for a mean and the like, padding."""
    name, is_max = step.name, "max" in step.name
    dims = next(d for d in (1, 2, 3) if f"pool{d}d" in name)
    other = f"{'avg' if is_max else 'max'}_pool{dims}d"
    yield around(index, f"{other} in place of {name}", _pooling(other))
    if is_max:
        yield around(index, f"the least of each window of {name}", _least)
    else:
        taps = torch.Size(_per_dim(step.args["kernel_size"], dims)).numel()
        yield around(index, f"the sum of each window of {name}", lambda call, run: run(call) * taps)
    yield around(
        index,
        f"the first element of each window of {name}",
        _first_of_windows(first_result(recording, step).shape[-dims:]),
        POSSIBLE,
    )
    if any(step.args["padding"]):
        yield around(index, f"the padding of {name} ignored", _pool_padding_ignored(is_max))


def _least(call: Call, run: Run) -> Any:
    return -first(run({**call, "self": -call["self"]}))


def _pooling(name: str) -> Around:
    pooled = getattr(F, name)
    return lambda call, run: pooled(
        call["self"], call["kernel_size"], call["stride"] or None, call["padding"], ceil_mode=call["ceil_mode"]
    )


def _pool_padding_ignored(is_max: bool) -> Around:
    def change(call: Call, run: Run) -> Any:
        padding = _per_dim(call["padding"], len(call["kernel_size"]))
        sizes = _pads([0] * len(padding), [2 * p for p in padding])
        longer = F.pad(call["self"], sizes, value=float("-inf") if is_max else 0.0)
        return run({**call, "self": longer, "padding": [0] * len(padding)})

    return change


def _first_of_windows(size: torch.Size) -> Around:
    def change(call: Call, run: Run) -> Any:
        x: torch.Tensor = call["self"]
        strides = _per_dim(call["stride"] or call["kernel_size"], len(size))
        for dim, (length, stride) in enumerate(zip(size, strides, strict=True), start=x.dim() - len(size)):
            x = x.index_select(dim, torch.arange(0, length * stride, stride, device=x.device))
        return x

    return change


def interpolation(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """Nearest for linear, and the other way round."""
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[operands(recording, step)["self"].dim() - 2]
    mode = "nearest" if "linear" in step.name or "cubic" in step.name else linear
    size = list(first_result(recording, step).shape[2:])
    words = f"{mode} interpolation in place of {step.name}"
    yield around(index, words, lambda call, run: F.interpolate(call["self"], size=size, mode=mode), LIKELY)
