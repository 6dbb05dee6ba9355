"""Programs over a convolution's product beside PyTorch, and their kernels, forward and backward, on the emulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from conv_harness import DTYPES, TWO, Case, Tensors, channel_strides, operands, rounded
from launcher import Run, emulated, loaded

from crucible.algebra.convolution.fused import LEAF, Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution, product
from crucible.algebra.expression import Expr, parameter, tensor
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous, trimmed
from crucible.kinds.convolution.reducing import lower_reducing, lower_reducing_backward
from crucible.kinds.program.lower import joined, lower
from crucible.kinds.steps import Steps
from crucible.print.written import Lowered

WANTED = ("x", "weight", "bias", "other", "common")
NEAR = {"float32": 3e-3, "float16": 2e-2, "bfloat16": 8e-2}
"""Of the largest value: the gradient of the product is rounded as well before it is multiplied."""
EXACT = 2e-5


@dataclass(frozen=True)
class Ending:
    """What becomes of a product: as a program's reductions and result, and the same in PyTorch."""

    program: Callable[[int], tuple[tuple[Reduction, ...], Expr]]
    """Of the number of columns; it reads `LEAF`, `bias` (of channels), `other` and `common` (of all images)."""
    torchs: Callable[[torch.Tensor, Tensors], torch.Tensor]
    per_row: bool = False


BIAS, OTHER, COMMON = parameter("bias"), tensor("other"), parameter("common")


def _bounded(count: int) -> tuple[tuple[Reduction, ...], Expr]:
    power = (LEAF + BIAS).clamp(0, 1).exp()
    total = Reduction("total", "sum", power)
    return (total,), power * (1.0 / total.leaf) * BIAS


def _softmax(count: int) -> tuple[tuple[Reduction, ...], Expr]:
    largest = Reduction("largest", "max", LEAF, constant=True)
    power = (LEAF - largest.leaf).exp()
    total = Reduction("total", "sum", power)
    return (largest, total), power / total.leaf * OTHER


def _normal(count: int) -> tuple[tuple[Reduction, ...], Expr]:
    total = Reduction("total", "sum", LEAF)
    less = LEAF - total.leaf * (1 / count)
    squares = Reduction("squares", "sum", less.square(), still=frozenset({"total"}))
    return (total, squares), less * (squares.leaf * (1 / count) + 0.1).rsqrt() * BIAS + COMMON


def _mean(count: int) -> tuple[tuple[Reduction, ...], Expr]:
    total = Reduction("total", "sum", (LEAF + OTHER).leaky_relu(0.2))
    return (total,), total.leaf * (1 / count) + BIAS


def _gate(count: int) -> tuple[tuple[Reduction, ...], Expr]:
    total = Reduction("total", "sum", LEAF)
    return (total,), OTHER * (total.leaf * (1 / count) + BIAS).sigmoid()


def _largest(count: int) -> tuple[tuple[Reduction, ...], Expr]:
    largest, total = Reduction("largest", "max", LEAF.relu()), Reduction("total", "sum", LEAF.relu())
    return (largest, total), largest.leaf + total.leaf * BIAS


def _flat(y: torch.Tensor) -> torch.Tensor:
    return y.flatten(2)


def _of_channels(known: Tensors, y: torch.Tensor) -> torch.Tensor:
    return known["bias"].reshape(-1, *[1] * (y.dim() - 2))


ENDINGS = {
    "bounded": Ending(
        _bounded,
        lambda y, k: (
            torch.softmax(_flat((y + _of_channels(k, y)).clamp(0, 1)), 2).reshape(y.shape) * _of_channels(k, y)
        ),
    ),
    "softmax": Ending(_softmax, lambda y, k: torch.softmax(_flat(y), 2).reshape(y.shape) * k["other"]),
    "normal": Ending(
        _normal,
        lambda y, k: (
            torch.nn.functional.instance_norm(y, eps=0.1, use_input_stats=True) * _of_channels(k, y) + k["common"]
        ),
    ),
    "mean": Ending(
        _mean,
        lambda y, k: _flat(torch.nn.functional.leaky_relu(y + k["other"], 0.2)).mean(2) + k["bias"],
        per_row=True,
    ),
    "gate": Ending(
        _gate,
        lambda y, k: (
            k["other"] * torch.sigmoid(_flat(y).mean(2) + k["bias"]).reshape(*y.shape[:2], *[1] * (y.dim() - 2))
        ),
    ),
    "largest": Ending(
        _largest, lambda y, k: _flat(y.relu()).amax(2) + _flat(y.relu()).sum(2) * k["bias"], per_row=True
    ),
}


@dataclass(frozen=True)
class Reducing:
    """A case of a convolution with an ending."""

    case: Case
    ending: str
    asked: tuple[str, ...] = tuple(name for name in WANTED if name != "weight")
    """Whose gradients are taken."""

    @property
    def name(self) -> str:
        return f"{self.case.name}_{self.ending}"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.case.correlation.out_shape

    @cached_property
    def fused(self) -> ReducingConvolution:
        of, dtype = self.case.correlation, self.case.dtype
        reductions, expr = ENDINGS[self.ending].program(math.prod(self.shape[2:]))
        whole = contiguous(self.shape)
        x = Operand("x", dtype, contiguous(of.in_shape))
        weight = Operand("weight", dtype, contiguous(self.case.weight_shape))
        conv = Convolution(self.name, of, x, weight, self.case.weight_shape, (), (), self.case.exact)
        given = (
            Operand("bias", "float32", channel_strides(of), shared=True),
            Operand("other", "float32", whole),
            Operand("common", "float32", (0, *whole[1:]), shared=True),
        )
        laid = contiguous(self.shape[:2]) if ENDINGS[self.ending].per_row else whole
        result = Result("out", "float32", laid, expr)
        program = Program(self.name, self.shape, 2, (product(conv), *given), reductions, (result,))
        return ReducingConvolution(self.name, conv, trimmed(program)).differentiable(self.asked)[0]

    @cached_property
    def lowered(self) -> Lowered:
        """Forward, then backward."""
        forward = lower_reducing(self.fused, TWO)
        if not self.asked:
            return _joined(forward)
        back = lower_reducing_backward(self.fused, self.asked, "grad_out", TWO)
        return joined([_joined(forward), _joined(back)])

    def known(self) -> Tensors:
        """What is given: the product is of the order of 1."""
        found = operands(self.case)
        of, generator = self.case.correlation, torch.Generator().manual_seed(1)
        taps = of.in_channels * math.prod(axis.kernel for axis in of.axes)
        found["weight"] = (found["weight"] / taps**0.5).to(found["weight"].dtype)
        found["bias"] = torch.randn(self.shape[1], generator=generator)
        found["other"] = torch.randn(self.shape, generator=generator)
        found["common"] = torch.randn(1, *self.shape[1:], generator=generator)
        shape = self.shape[:2] if ENDINGS[self.ending].per_row else self.shape
        return {**found, "grad_out": torch.randn(shape, generator=generator)}

    def wanted(self, known: Tensors) -> Tensors:
        """Of float64, of operands rounded as tensor cores round them."""
        exact = {n: (rounded(t, self.case) if n in ("x", "weight") else t).double() for n, t in known.items()}
        given = {n: exact[n].requires_grad_() if n in self.asked else exact[n] for n in WANTED}
        out = ENDINGS[self.ending].torchs(self.case.torchs(given["x"], given["weight"]), given)
        if not self.asked:
            return {"out": out}
        gradients = torch.autograd.grad(out, [given[n] for n in self.asked], exact["grad_out"], allow_unused=True)
        found = {f"grad_{n}": g for n, g in zip(self.asked, gradients, strict=True) if g is not None}
        return {"out": out.detach(), **found}


def _joined(steps: Steps) -> Lowered:
    kernels = [lower(each, TWO.sms) if isinstance(each, Program) else each for each in steps.steps]
    return joined([Lowered((), steps.buffers), *kernels])


@dataclass(frozen=True)
class Built:
    """All kernels of some cases."""

    run: Run
    first: dict[str, int]
    device: str

    def __call__(self, case: Reducing, known: Tensors) -> Tensors:
        """Runs a case; what it writes is full of 7 before."""
        lowered, dtype = case.lowered, case.case.dtype
        held = dict(known)
        held |= {b.name: torch.full((b.elements,), 7, dtype=DTYPES[b.dtype]) for b in lowered.buffers}
        rows = math.prod(case.shape[:2])
        for kernel in lowered.kernels:
            for name in kernel.writes:
                like = known.get(name.removeprefix("grad_"), known["grad_out"] if name == "out" else None)
                made = torch.full((rows,), 7.0) if like is None else torch.full_like(like, 7)
                held.setdefault(name, made)
        assert held["x"].dtype == DTYPES[dtype]
        held = {name: tensor.to(self.device) for name, tensor in held.items()}
        for number, kernel in enumerate(lowered.kernels, self.first[case.name]):
            self.run(number, [held[name] for name in (*kernel.reads, *kernel.writes)])
        return {name: tensor.cpu() for name, tensor in held.items()}


def build(cases: Sequence[Reducing], load: Callable[..., Any] = emulated,
          device: str = "cpu", builds: int = 1) -> Built:  # fmt: skip
    """Kernels of all cases in so many extensions, which `load` loads as `load_inline` does."""
    types = []
    for case in cases:
        known = {b.name: b.dtype for b in case.lowered.buffers}
        words = [name for kernel in case.lowered.kernels for name in (*kernel.reads, *kernel.writes)]
        ours = dict.fromkeys(words, "float32") | dict.fromkeys(
            ("x", "weight", "grad_x", "grad_weight"), case.case.dtype
        )
        types.append(ours | known)
    run = loaded("reducing", [case.lowered for case in cases], types, load, builds)
    first, number = {}, 0
    for case in cases:
        first[case.name] = number
        number += len(case.lowered.kernels)
    return Built(run, first, device)


def wrong(built: Built, case: Reducing) -> list[str]:
    """Words on what is wrong."""
    known = case.known()
    found, right = built(case, known), case.wanted(known)
    near = EXACT if case.case.exact else NEAR[case.case.dtype]
    words = []
    for name, exact in right.items():
        error = (found[name].reshape(exact.shape).double() - exact).abs().max() / exact.abs().max().clamp(min=1e-30)
        if not error <= near:
            words.append(f"{name}: off by {error:.2g} of the largest value, {near} allowed")
    return words
