"""Values by numpy: the reference that tests compare with, in the precision of the arrays given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crucible.algebra.expression import Expr, name_of, nodes
from crucible.algebra.operations import FUNCTIONS, define
from crucible.algebra.program import Program, Result

Array: TypeAlias = npt.NDArray[Any]


def evaluate(expr: Expr, values: Mapping[str, npt.ArrayLike]) -> Array:
    """The value for arrays of tensors and parameters by name, which broadcast; conditions as booleans.

    Computed in float32 where all arrays are float32, else in float64; each primitive is rounded once (fma twice).
    """
    arrays = {name: np.asarray(value) for name, value in values.items()}
    single = bool(arrays) and all(array.dtype == np.float32 for array in arrays.values())
    done: dict[Expr, Array] = {}
    with np.errstate(all="ignore"):
        return _evaluate(expr, arrays, done, np.dtype(np.float32 if single else np.float64))


def evaluate_program(program: Program, storages: Mapping[str, Array]) -> dict[str, Array]:
    """The results of a program, each as the flat storage it is written to, from the operands' flat storages."""
    values: dict[str, Array] = {}
    for operand in program.operands:
        storage = storages[operand.name][operand.start :]
        strides = tuple(stride * storage.itemsize for stride in operand.strides)
        shape = tuple(size if stride else 1 for size, stride in zip(program.shape, strides, strict=True))
        values[operand.name] = np.lib.stride_tricks.as_strided(storage, shape, strides, writeable=False)
    columns = tuple(range(program.rows, len(program.shape)))
    for reduction in program.reductions:
        each = np.broadcast_to(evaluate(reduction.expr, values), program.shape)
        if reduction.kind == "sum":
            values[reduction.name] = np.sum(each, axis=columns, keepdims=True)
        else:
            values[reduction.name] = np.max(each, axis=columns, keepdims=True, initial=-np.inf)
    return {result.name: _stored(program, result, evaluate(result.expr, values)) for result in program.results}


def _stored(program: Program, result: Result, value: Array) -> Array:
    """A result's flat storage."""
    shape = program.shape[: len(result.strides)]
    if program.is_per_row(result):
        firsts = (slice(None),) * program.rows + (0,) * len(program.column_shape)
        value = np.broadcast_to(value, np.broadcast_shapes(value.shape, (1,) * len(program.shape)))[firsts]
    if 0 in shape:
        return np.zeros(0, value.dtype)
    extents = [(size - 1) * stride for size, stride in zip(shape, result.strides, strict=True)]
    storage = np.zeros(sum(extents) + 1, value.dtype)
    places = sum(
        (np.arange(n).reshape(-1, *(1,) * (len(shape) - dim - 1)) * stride)
        for dim, (n, stride) in enumerate(zip(shape, result.strides, strict=True))
    )
    places, value = np.broadcast_to(places, shape).reshape(-1), np.broadcast_to(value, shape).reshape(-1)
    if result.sums:
        np.add.at(storage, places, value)
        return storage
    storage[places] = value
    if not np.array_equal(storage[places], value, equal_nan=True):
        raise ValueError(f"{result.name}: elements that differ are written to one place, and its `sums` is False")
    return storage


def _evaluate(expr: Expr, arrays: dict[str, Array], done: dict[Expr, Array], dtype: np.dtype[Any]) -> Array:
    for node in nodes(expr):
        if node in done:
            continue
        if node.kind in ("tensor", "parameter"):
            done[node] = arrays[name_of(node)].astype(dtype)
        elif node.kind == "constant":
            done[node] = np.asarray(node.attributes[0], dtype)
        elif node.kind in FUNCTIONS:
            done[node] = _evaluate(define(node), arrays, done, dtype)
        else:
            done[node] = np.asarray(_PRIMITIVE[node.kind](*(done[arg] for arg in node.args), *node.attributes))
    return done[expr]


def _wide(function: Callable[..., Any]) -> Callable[..., Array]:
    """In float64, then rounded: numpy's float32 functions are off by several units."""

    def rounded(*args: Array) -> Array:
        return np.asarray(function(*(arg.astype(np.float64) for arg in args))).astype(args[0].dtype)

    return rounded


def _power(base: Array, exponent: Array) -> Array:
    """numpy takes the square root for a single exponent of 0.5, which is NaN for minus infinity where pow is not."""
    return np.asarray(np.power(base, exponent + np.zeros_like(base)))


def cast(x: Array, dtype: str) -> Array:
    """Through float32, as PyTorch rounds from float64."""
    single = x.astype(np.float32)
    if dtype == "float16":
        return single.astype(np.float16).astype(x.dtype)
    if dtype == "bfloat16":
        bits = single.view(np.uint32)
        kept = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
        single = np.where(np.isfinite(single), kept.view(np.float32), single)
    return single.astype(x.dtype)


_PRIMITIVE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": _wide(_power),
    "fma": lambda a, b, c: a * b + c,
    "neg": np.negative,
    "abs": np.abs,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "cast": cast,
    "reciprocal": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": _wide(lambda x: 1 / np.sqrt(x)),
    "exp": _wide(np.exp),
    "exp2_approx": _wide(np.exp2),
    "expm1": _wide(np.expm1),
    "log": _wide(np.log),
    "log1p": _wide(np.log1p),
    "sin": _wide(np.sin),
    "cos": _wide(np.cos),
    "erf": _wide(np.frompyfunc(math.erf, 1, 1)),
    "tanh": _wide(np.tanh),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "where": np.where,
}
