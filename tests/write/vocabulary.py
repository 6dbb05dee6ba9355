"""Every operation of the chain IR beside PyTorch's, with the places where it has kinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from crucible.algebra.expression import Expr, where

Build = Callable[..., Expr]
INF = float("inf")


@dataclass(frozen=True)
class Case:
    """An operation of one or two values, twice."""

    ours: Build
    torchs: Callable[..., torch.Tensor]
    kinks: tuple[float, ...] = ()
    jumps: bool = False
    """Not continuous: a rounding before may decide."""


def same(build: Callable[..., Any], *kinks: float, jumps: bool = False) -> Case:
    """Operations that read the same for both."""
    return Case(build, build, kinks, jumps)


HALVES = (1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0, 2**-25, 1.5 * 2**-24)
"""Ties of bfloat16 and float16, and where float16 ends."""

UNARY: dict[str, Case] = {
    "neg": same(lambda x: -x),
    "beside what is detached": same(lambda x: x * x.detach() + x.detach()),
    "abs": same(abs, 0),
    "plus 1.5": same(lambda x: x + 1.5),
    "1.5 minus": same(lambda x: 1.5 - x),
    "times -0.7": same(lambda x: -0.7 * x),
    "over 3": same(lambda x: x / 3),
    "2 over": same(lambda x: 2 / x, 0),
    "pow 2": same(lambda x: x**2),
    "pow 3": same(lambda x: x**3),
    "pow 2.5": same(lambda x: x**2.5, 0),
    "pow -2": same(lambda x: x**-2),
    "pow 0": same(lambda x: x**0, 0),
    "square": same(lambda x: x.square()),
    "sqrt": same(lambda x: x.sqrt(), 0),
    "rsqrt": same(lambda x: x.rsqrt(), 0),
    "reciprocal": same(lambda x: x.reciprocal()),
    "sign": same(lambda x: x.sign(), 0, jumps=True),
    "exp": same(lambda x: x.exp()),
    "expm1": same(lambda x: x.expm1()),
    "log": same(lambda x: x.log(), 0),
    "log1p": same(lambda x: x.log1p(), -1),
    "sin": same(lambda x: x.sin()),
    "cos": same(lambda x: x.cos()),
    "erf": same(lambda x: x.erf()),
    "tanh": same(lambda x: x.tanh()),
    "sigmoid": same(lambda x: x.sigmoid()),
    "maximum 0.5": Case(lambda x: x.maximum(0.5), lambda x: torch.maximum(x, torch.full_like(x, 0.5)), (0.5,)),
    "minimum 0.5": Case(lambda x: x.minimum(0.5), lambda x: torch.minimum(x, torch.full_like(x, 0.5)), (0.5,)),
    "clamp": same(lambda x: x.clamp(-1, 1), -1, 1),
    "clamp below": same(lambda x: x.clamp(-0.5), -0.5),
    "clamp above": same(lambda x: x.clamp(None, 0.5), 0.5),
    "clamp reversed": same(lambda x: x.clamp(1, -1), -1, 1),
    "relu": same(lambda x: x.relu(), 0),
    "relu6": Case(lambda x: x.relu6(), F.relu6, (0, 6)),
    "hardtanh": Case(lambda x: x.hardtanh(-1, 2), lambda x: F.hardtanh(x, -1, 2), (-1, 2)),
    "leaky_relu": Case(lambda x: x.leaky_relu(0.2), lambda x: F.leaky_relu(x, 0.2), (0,)),
    "leaky_relu negative": Case(lambda x: x.leaky_relu(-0.5), lambda x: F.leaky_relu(x, -0.5), (0,)),
    "elu": Case(lambda x: x.elu(1.5), lambda x: F.elu(x, 1.5), (0,)),
    "selu": Case(lambda x: x.selu(), F.selu, (0,)),
    "celu": Case(lambda x: x.celu(2.0), lambda x: F.celu(x, 2.0), (0,)),
    "gelu": Case(lambda x: x.gelu(), F.gelu),
    "gelu tanh": Case(lambda x: x.gelu("tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "silu": Case(lambda x: x.silu(), F.silu),
    "mish": Case(lambda x: x.mish(), F.mish),
    "softplus": Case(lambda x: x.softplus(), F.softplus, (20,)),
    "softplus 2 3": Case(lambda x: x.softplus(2.0, 3.0), lambda x: F.softplus(x, 2.0, 3.0), (1.5,), jumps=True),
    "hardsigmoid": Case(lambda x: x.hardsigmoid(), F.hardsigmoid, (-3, 3)),
    "hardswish": Case(lambda x: x.hardswish(), F.hardswish, (-3, 3)),
    "hardshrink": Case(lambda x: x.hardshrink(0.5), lambda x: F.hardshrink(x, 0.5), (-0.5, 0.5), jumps=True),
    "softshrink": Case(lambda x: x.softshrink(0.5), lambda x: F.softshrink(x, 0.5), (-0.5, 0.5)),
    "tanhshrink": Case(lambda x: x.tanhshrink(), F.tanhshrink),
    "logsigmoid": Case(lambda x: x.logsigmoid(), F.logsigmoid, (0,)),
    "softsign": Case(lambda x: x.softsign(), F.softsign, (0,)),
    "threshold": Case(lambda x: x.threshold(0.5, -2), lambda x: F.threshold(x, 0.5, -2), (0.5,), jumps=True),
    "dropout": Case(lambda x: x.dropout(), lambda x: F.dropout(x, 0.5, training=False)),
    "half": Case(lambda x: x.cast("float16"), lambda x: x.half().to(x.dtype), HALVES, jumps=True),
    "bfloat": Case(lambda x: x.cast("bfloat16"), lambda x: x.bfloat16().to(x.dtype), HALVES, jumps=True),
    "single": Case(lambda x: x.cast("float32"), lambda x: x.float().to(x.dtype), jumps=True),
    "where": Case(lambda x: where((x > 0) & (x <= 2), x * x, 0.5 * x),
                  lambda x: torch.where((x > 0) & (x <= 2), x * x, 0.5 * x), (0, 2), jumps=True),
    "where not": Case(lambda x: where(~(x < 1) | x.differs(x), x, 1 - x),
                      lambda x: torch.where(~(x < 1) | (x != x), x, 1 - x), (1,), jumps=True),
}  # fmt: skip

BINARY: dict[str, Case] = {
    "add": same(lambda x, y: x + y),
    "sub": same(lambda x, y: x - y),
    "mul": same(lambda x, y: x * y),
    "div": same(lambda x, y: x / y),
    "pow": same(lambda x, y: x**y),
    "maximum": Case(lambda x, y: x.maximum(y), torch.maximum),
    "minimum": Case(lambda x, y: x.minimum(y), torch.minimum),
    "prelu": Case(lambda x, y: x.prelu(y), lambda x, y: F.prelu(x[None], y)[0]),
    "where less": Case(lambda x, y: where(x < y, x, 2 * y), lambda x, y: torch.where(x < y, x, 2 * y), jumps=True),
    "where equal": Case(lambda x, y: where(x.equals(y), x, y - x),
                        lambda x, y: torch.where(x == y, x, y - x), jumps=True),
}  # fmt: skip


def places(case: Case) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Dense, random, at every kink and beside it, zeros, subnormals, large, infinite, NaN: float32 numbers.

    NaN comes last, one more than a multiple of 16: PyTorch's vector loops on the CPU do not reach it, and there
    they differ from its GPU kernels.
    """
    generator = np.random.default_rng(0)
    kinks = np.array(case.kinks, np.float32)
    beside = [np.nextafter(kinks, np.float32(end)) for end in (-INF, INF)]
    special = [0.0, -0.0, 1e-40, -1e-40, 1e-20, 88.5, -88.5, 110.0, -110.0, 1e10, -1e10, 3e38, -3e38, INF, -INF]
    fixed = np.concatenate([np.linspace(-8, 8, 321), np.array(special), kinks, *beside])
    random = generator.normal(0, 3, 200 + -len(fixed) % 16 + 8)
    return np.concatenate([random, fixed, [np.nan]]).astype(np.float32).astype(np.float64)
