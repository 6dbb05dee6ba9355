"""Chains by torch in float64, where they are too large for numpy: what kernels are held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from crucible.algebra.expression import Expr, name_of, nodes
from crucible.algebra.operations import FUNCTIONS, define


def evaluate(expr: Expr, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The value for tensors by name, which broadcast, in their dtype; conditions as booleans."""
    done: dict[Expr, torch.Tensor] = {}
    like = next(iter(values.values()))
    return _evaluate(expr, values, done, like)


def _evaluate(
    expr: Expr, values: Mapping[str, torch.Tensor], done: dict[Expr, torch.Tensor], like: torch.Tensor
) -> torch.Tensor:
    for node in nodes(expr):
        if node in done:
            continue
        if node.kind in ("tensor", "parameter"):
            done[node] = values[name_of(node)]
        elif node.kind == "constant":
            done[node] = like.new_tensor(node.attributes[0])
        elif node.kind in FUNCTIONS:
            done[node] = _evaluate(define(node), values, done, like)
        else:
            done[node] = PRIMITIVE[node.kind](*(done[arg] for arg in node.args), *node.attributes)
    return done[expr]


def _cast(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """Through float32, as kernels hold it."""
    return x.float().to(getattr(torch, dtype)).double()


PRIMITIVE: dict[str, Callable[..., Any]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
    "fma": lambda a, b, c: a * b + c, "neg": torch.neg, "abs": torch.abs, "maximum": torch.maximum,
    "minimum": torch.minimum, "cast": _cast, "reciprocal": torch.reciprocal, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "exp": torch.exp, "exp2_approx": torch.exp2, "expm1": torch.expm1, "log": torch.log,
    "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos, "erf": torch.erf, "tanh": torch.tanh,
    "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "eq": torch.eq, "ne": torch.ne,
    "and": torch.logical_and, "or": torch.logical_or, "not": torch.logical_not, "where": torch.where,
}  # fmt: skip
