"""Programs that tests share, each beside the same computation in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from crucible.algebra.expression import Expr, constant, parameter, tensor
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A program, and what it is."""

    program: Program
    module: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    """Takes the operands by name; gives the results in order."""
    shapes: dict[str, tuple[int, ...]]
    """Of the operands, as the module takes them."""


def _laid(name: str, shape: tuple[int, ...], over: tuple[int, ...]) -> Operand:
    """A tensor that broadcasts over a space of the same rank."""
    strides = [stride if size > 1 else 0 for stride, size in zip(contiguous(shape), shape, strict=True)]
    return Operand(name, "float32", tuple(strides), shared=shape != over)


def pointwise(shape: tuple[int, ...] = (3, 4, 5, 6)) -> Case:
    """leaky_relu(x) + bias, clamped, GELU, times a scale for all and a residual."""
    channel = (1, shape[1], *(1 for _ in shape[2:]))
    x, bias, scale, other = tensor("x"), parameter("bias"), parameter("scale"), tensor("other")
    out = (x.leaky_relu(0.2) + bias).clamp(-1, 1).gelu() * scale + other
    operands = (
        _laid("x", shape, shape),
        _laid("bias", channel, shape),
        _laid("scale", (1,) * len(shape), shape),
        _laid("other", shape, shape),
    )
    program = Program("chain", shape, len(shape), operands, (), (Result("out", "float32", contiguous(shape), out),))

    def module(x: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return F.gelu((F.leaky_relu(x, 0.2) + bias).clamp(-1, 1)) * scale + other

    return Case(program, module, {"x": shape, "bias": channel, "scale": (1,) * len(shape), "other": shape})


def softmax(rows: tuple[int, ...] = (3, 4), columns: tuple[int, ...] = (5, 7)) -> Case:
    """Softmax of a chain over trailing dims, times a scale for each of the last row dim."""
    shape = rows + columns
    per_row = (*(1 for _ in rows[:-1]), rows[-1], *(1 for _ in columns))
    x, scale = tensor("x"), parameter("scale")
    inner = x.tanh() * 2.0
    largest = Reduction("largest", "max", inner, constant=True)
    total = Reduction("total", "sum", (inner - largest.leaf).exp())
    out = (inner - largest.leaf).exp() / total.leaf * scale
    operands = (_laid("x", shape, shape), _laid("scale", per_row, shape))
    result = Result("out", "float32", contiguous(shape), out)
    program = Program("softmax", shape, len(rows), operands, (largest, total), (result,))

    def module(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.softmax((torch.tanh(x) * 2).flatten(len(rows)), -1).reshape(shape) * scale

    return Case(program, module, {"x": shape, "scale": per_row})


def _moments(x: Expr, count: int) -> tuple[tuple[Reduction, Reduction], Expr]:
    total = Reduction("total", "sum", x)
    mean = total.leaf * (1 / count)
    squares = Reduction("squares", "sum", (x - mean).square(), still=frozenset({"total"}))
    return (total, squares), (x - mean) * (squares.leaf * (1 / count) + 1e-5).rsqrt()


def layer_norm(rows: tuple[int, ...] = (3, 4), columns: int = 7) -> Case:
    """layer_norm over the last dim, then SiLU."""
    shape, weight_shape = (*rows, columns), (*(1 for _ in rows), columns)
    reductions, normal = _moments(tensor("x"), columns)
    out = (normal * parameter("weight") + parameter("bias")).silu()
    operands = (_laid("x", shape, shape), _laid("weight", weight_shape, shape), _laid("bias", weight_shape, shape))
    result = Result("out", "float32", contiguous(shape), out)
    program = Program("layer_norm", shape, len(rows), operands, reductions, (result,))

    def module(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.silu(F.layer_norm(x, (columns,), weight.reshape(-1), bias.reshape(-1)))

    return Case(program, module, {"x": shape, "weight": weight_shape, "bias": weight_shape})


def group_norm(batch: int = 3, groups: int = 2, channels: int = 6, size: int = 5) -> Case:
    """group_norm with weights for each channel: they differ along rows and along columns."""
    shape = (batch, groups, channels // groups, size)
    weight_shape = (1, groups, channels // groups, 1)
    reductions, normal = _moments(tensor("x"), channels // groups * size)
    out = normal * parameter("weight") + parameter("bias")
    operands = (_laid("x", shape, shape), _laid("weight", weight_shape, shape), _laid("bias", weight_shape, shape))
    program = Program("group_norm", shape, 2, operands, reductions, (Result("out", "float32", contiguous(shape), out),))

    def module(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        given = x.reshape(batch, channels, size)
        return F.group_norm(given, groups, weight.reshape(-1), bias.reshape(-1), 1e-5).reshape(shape)

    return Case(program, module, {"x": shape, "weight": weight_shape, "bias": weight_shape})


def channel_softmax(shape: tuple[int, ...] = (2, 6, 5)) -> Case:
    """Softmax over dim 1: rows are (batch, place), columns the channels, with a bias for each channel before."""
    n, c, s = shape
    space, strides = (n, s, c), (c * s, 1, s)
    inner = tensor("x") + parameter("bias")
    largest = Reduction("largest", "max", inner, constant=True)
    total = Reduction("total", "sum", (inner - largest.leaf).exp())
    out = (inner - largest.leaf).exp() / total.leaf
    operands = (Operand("x", "float32", strides), Operand("bias", "float32", (0, 0, 1), shared=True))
    program = Program(
        "channel_softmax", space, 2, operands, (largest, total), (Result("out", "float32", strides, out),)
    )

    def module(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + bias, 1)

    return Case(program, module, {"x": shape, "bias": (1, c, 1)})


def row_results(rows: int = 6, columns: int = 9) -> Case:
    """Mean, logsumexp and amax of each row: two results, with a factor for each row afterwards."""
    shape = (rows, columns)
    x, factor = tensor("x"), parameter("factor")
    largest = Reduction("largest", "max", x.relu())
    shift = Reduction("shift", "max", x, constant=True)
    total = Reduction("total", "sum", (x - shift.leaf).exp())
    mean = Reduction("mean", "sum", x * factor)
    results = (
        Result("peak", "float32", (1,), largest.leaf * factor + mean.leaf * (1 / columns)),
        Result("log_total", "float32", (1,), total.leaf.log() + shift.leaf),
    )
    operands = (_laid("x", shape, shape), _laid("factor", (rows, 1), shape))
    program = Program("row_results", shape, 1, operands, (largest, shift, total, mean), results)

    def module(x: torch.Tensor, factor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        peak = torch.amax(F.relu(x), 1) * factor[:, 0] + (x * factor).mean(1)
        return peak, torch.logsumexp(x, 1)

    return Case(program, module, {"x": shape, "factor": (rows, 1)})


def whole_mean(shape: tuple[int, ...] = (4, 6)) -> Case:
    """One number of everything."""
    total = Reduction("total", "sum", tensor("x").square() * parameter("scale"))
    result = Result("mean", "float32", (), total.leaf * constant(1 / 24))
    operands = (_laid("x", shape, shape), _laid("scale", (1, 1), shape))
    program = Program("whole_mean", shape, 0, operands, (total,), (result,))

    def module(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (x.square() * scale).sum() / 24

    return Case(program, module, {"x": shape, "scale": (1, 1)})


CASES: dict[str, Callable[[], Case]] = {
    each.__name__: each
    for each in (pointwise, softmax, layer_norm, group_norm, channel_softmax, row_results, whole_mean)
}
