"""FLOPs of PyTorch's matrix operations: products, convolutions, attention, recurrent layers.

A multiply-add counts as two. Products with padding are left out, and so is what a causal mask throws away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

# The operands of a product, by their names in PyTorch's schemas.
_PRODUCTS = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "mv": ("self", "vec"),
    "dot": ("self", "tensor"),
    "vdot": ("self", "other"),
    "addmm": ("mat1", "mat2"),
    "_addmm_activation": ("mat1", "mat2"),
    "addmv": ("mat", "vec"),
    "baddbmm": ("batch1", "batch2"),
    "addbmm": ("batch1", "batch2"),
    "_int_mm": ("self", "mat2"),
    "_scaled_mm": ("self", "mat2"),
}
_CONVOLUTIONS = frozenset(
    ("convolution", "_convolution", "convolution_overrideable", "cudnn_convolution", "convolution_backward")
)
_ATTENTIONS = frozenset(("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention"))
_RECURRENT = frozenset(("_cudnn_rnn", "mkldnn_rnn_layer", "miopen_rnn"))
_WINDOW = ("stride", "padding", "dilation")


def matrix_flops(func: Any, name: str, named: dict[str, Any], result: Any) -> int:
    """Operations of a matrix product, convolution, attention or recurrent layer; 0 for all else."""
    backward = name.endswith("_backward")
    if name in _PRODUCTS:
        a, b = (named[operand] for operand in _PRODUCTS[name])
        return 2 * int(a.numel()) * (int(b.shape[-1]) if b.dim() > 1 else 1)
    if name in _CONVOLUTIONS:
        return _convolution_flops(named, named["grad_output"].shape if backward else result.shape)
    if name.removesuffix("_backward").removeprefix("_scaled_dot_product_") in _ATTENTIONS:
        return _attention_flops(named) * (2 if backward else 1)
    if name.removesuffix("_backward") in _RECURRENT:
        return _recurrent_flops(named) * (2 if backward else 1)
    formula = flop_registry.get(func.overloadpacket)
    return 0 if formula is None else int(formula(*named.values(), out_val=result))


def _convolution_flops(named: dict[str, Any], out_shape: Sequence[int]) -> int:
    """Of the forward, times the number of gradients asked for: each multiplies the same pairs."""
    x, weight = named["input"].shape, named["weight"].shape
    start, end = (x, out_shape) if named.get("transposed") else (out_shape, x)
    pairs = 1
    for dim, size in enumerate(weight[2:]):
        stride, padding, dilation = (named[key][min(dim, len(named[key]) - 1)] for key in _WINDOW)
        pairs *= _pairs(start[2 + dim], end[2 + dim], size, stride, padding, dilation)
    passes = sum(named["output_mask"][:2]) if "output_mask" in named else 1
    return 2 * int(x[0]) * int(weight[0]) * int(weight[1]) * pairs * passes


def _pairs(count: int, limit: int, size: int, stride: int, padding: int, dilation: int) -> int:
    """Pairs of one of `count` positions and one of `size` taps that meet one of `limit` elements, not padding."""
    total = 0
    for tap in range(size):
        shift = tap * dilation - padding
        first, last = -(shift // stride), (limit - 1 - shift) // stride
        total += max(0, min(last, count - 1) - max(first, 0) + 1)
    return total


def _attention_flops(named: dict[str, Any]) -> int:
    """Two products, of which a causal mask leaves the lower triangle."""
    (*batch, rows, width), columns, out_width = named["query"].shape, named["key"].shape[-2], named["value"].shape[-1]
    pairs = sum(min(row + 1, columns) for row in range(rows)) if named.get("is_causal") else rows * columns
    return int(2 * math.prod(batch) * pairs * (width + out_width))


def _recurrent_flops(named: dict[str, Any]) -> int:
    """Every matrix meets every step of every sequence."""
    weights = [t for key, value in named.items() if key.startswith("weight") for t in tensors_in(value)]
    steps = named["input"].numel() // named["input"].shape[-1]
    return int(2 * steps * sum(t.numel() for t in weights if t.dim() == 2))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)
