"""Which products of matrices kernels of ours compute; PyTorch does the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from crucible.algebra.product import Product
from crucible.algebra.program import Operand, contiguous
from crucible.gpus import Gpu
from crucible.graph import Operation, Ref, TensorType
from crucible.schedule.product import is_faster, serves

_FACTORS = {
    "linear": ("input", "weight"), "matmul": ("self", "other"), "mm": ("self", "mat2"), "bmm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
}  # fmt: skip
"""The two factors among an operation's arguments, by its kind."""
_ADDENDS = {"linear": "bias", "addmm": "self"}
"""What is added to the product."""
_Strides = tuple[int, int, int]


@dataclass(frozen=True)
class Taken:
    """A product that kernels of ours compute."""

    product: Product
    operands: Mapping[str, str]
    """The tensors in memory that it reads, by its operands."""
    addend: str | None
    """The tensor that is added to each row, if there is one."""


def factors(operation: Operation) -> tuple[str, str] | None:
    """The tensors that an operation multiplies; None where it is no product of two in float32."""
    names = [operation.args.get(word) for word in _FACTORS.get(operation.kind, ())]
    if not names or operation.outputs[0].tensor.dtype != "float32":
        return None
    left, right = names
    return (left.name, right.name) if isinstance(left, Ref) and isinstance(right, Ref) else None


def taken(operation: Operation, types: Mapping[str, TensorType], gpu: Gpu) -> Taken | None:
    """The product by tensors as they lie in memory; None for what stays with PyTorch: other shapes and layouts, a GPU
    without warpgroup instructions, small ones, where cuBLAS is estimated to be as fast."""
    found = factors(operation)
    if found is None or not _adds_plainly(operation):
        return None
    given, other = (types[name] for name in found)
    turned = other if operation.kind == "linear" else _turned(other)
    laid = _laid(given, turned)
    if laid is None:
        return None
    (batch, rows, depth), left, right = laid
    columns = turned.shape[-2]
    names = ("left", "right") if found[0] == found[1] else found
    result = operation.outputs[0].name
    product = Product(
        f"{result}_kernel", batch, rows, columns, depth, Operand(names[0], "float32", left),
        Operand(names[1], "float32", right), result, (rows * columns, columns),
    )  # fmt: skip
    if min(rows, columns, depth) < 2 or not (serves(product, gpu) and is_faster(product, gpu)):
        return None
    addend = operation.args.get(_ADDENDS.get(operation.kind, ""))
    return Taken(product, dict(zip(names, found, strict=True)), addend.name if isinstance(addend, Ref) else None)


def _adds_plainly(operation: Operation) -> bool:
    """Whether what is added, if anything, is a number a column, as it is."""
    if operation.kind != "addmm":
        return True
    return operation.args.get("alpha", 1) == operation.args.get("beta", 1) == 1


def _turned(type_: TensorType) -> TensorType:
    """With its last two dims exchanged; of one dim as it is."""
    shape, strides = type_.shape, type_.strides
    if len(shape) < 2:
        return type_
    return TensorType((*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2]), type_.dtype)


def _laid(left: TensorType, right: TensorType) -> tuple[tuple[int, int, int], _Strides, _Strides] | None:
    """Batch, rows and depth, and the strides of both factors over (batch, line, depth)."""
    if len(left.shape) < 2 or len(right.shape) < 2 or {left.dtype, right.dtype} != {"float32"}:
        return None
    depth = left.shape[-1]
    if len(right.shape) == 2:  # all dims before are rows
        if len(left.shape) > 2 and left.strides != contiguous(left.shape):
            return None
        rows = math.prod(left.shape[:-1])
        return (1, rows, depth), (0, left.strides[-2], left.strides[-1]), (0, *right.strides)  # type: ignore[return-value]
    if left.shape[:-2] != right.shape[:-2]:
        return None
    steps = [_step(each) for each in (left, right)]
    if None in steps:
        return None
    batch = math.prod(left.shape[:-2])
    strides = [(step or 0, *each.strides[-2:]) for step, each in zip(steps, (left, right), strict=True)]
    return (batch, left.shape[-2], depth), *strides  # type: ignore[return-value]


def _step(type_: TensorType) -> int | None:
    """From one matrix to the next, through all dims before; None where they are not so many steps of one size."""
    dims = [(n, stride) for n, stride in zip(type_.shape[:-2], type_.strides[:-2], strict=True) if n > 1]
    if not dims:
        return 0
    for (_, stride), (inner, step) in itertools.pairwise(dims):
        if stride != inner * step:
            return None
    return dims[-1][1]
