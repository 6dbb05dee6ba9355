"""Convolutions with a pool inside, forward and backward, beside PyTorch's, on the emulator.

All numbers are small integers or halves: sums are exact however they are ordered and multiplied, and windows are full
of ties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
import torch.nn.functional as F
from conv_harness import DTYPES, ONE, TWO, Built, Case, Tensors, channel_strides

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.correlation import input_gradient
from crucible.algebra.convolution.fused import LEAF, Convolution
from crucible.algebra.convolution.windows import Spread, Windows
from crucible.algebra.expression import Expr, parameter, tensor
from crucible.algebra.program import Operand, Program, Result, contiguous
from crucible.kinds.convolution.backward import kept, lower_convolution_backward
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.convolution.weights import lower_weight_gradient
from crucible.kinds.program.lower import lower
from crucible.print.written import Lowered
from crucible.schedule.convolution.halo import UNITS, Boxes
from crucible.schedule.convolution.tile_choice import best
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.weight_division import best_divisions

WANTED = ("x", "weight", "bias", "scale", "other")
WAYS = 40
Way = TypeVar("Way", bound=Boxes)


def _torch_bent(u: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.leaky_relu(F.leaky_relu(u + bias, 0.5) * scale, 0.5)


BEFORE: dict[str, tuple[Callable[..., Expr], Callable[..., torch.Tensor]]] = {
    "none": (lambda u, b, s: u, lambda u, b, s: u),
    "bent": (lambda u, b, s: ((u + b).leaky_relu(0.5) * s).leaky_relu(0.5), _torch_bent),
    "folded": (lambda u, b, s: abs(u + b), lambda u, b, s: abs(u + b)),
    "clamped": (lambda u, b, s: (u + b).clamp(-2, 2), lambda u, b, s: (u + b).clamp(-2, 2)),
    "scaled": (lambda u, b, s: u * s + b, lambda u, b, s: u * s + b),
    "falling": (lambda u, b, s: b - (u + b).leaky_relu(0.5) * s, lambda u, b, s: b - F.leaky_relu(u + b, 0.5) * s),
}
"""What is pooled."""


@dataclass(frozen=True)
class PooledCase:
    """A convolution, its chain, a pool over that, and a product with another tensor behind."""

    case: Case
    kind: str
    sizes: tuple[int, ...]
    chain: str
    way: int = 0
    """Of dividing it, most promising first."""
    division: Callable[[Convolution], Tiling] | None = None
    """How forward is divided, in place of that."""
    gradients: bool = True
    """Whether backward is run; else what forward keeps for it is looked at."""

    @property
    def name(self) -> str:
        return f"{self.case.name}_pooled"

    @property
    def dtype(self) -> str:
        return self.case.dtype

    @property
    def fused(self) -> Convolution:
        of, dtype = self.case.correlation, self.dtype
        bias, scale, other = parameter("bias", dtype), parameter("scale", dtype), tensor("other", dtype)
        before = BEFORE[self.chain][0](LEAF, bias, scale)
        pool = Windows(self.kind, self.sizes, before)
        shape = pool.outputs(of.out_shape)
        channels = channel_strides(of)
        operands = [Operand(name, dtype, channels, shared=True) for name in ("bias", "scale")]
        operands.append(Operand("other", dtype, contiguous(shape)))
        x = Operand("x", dtype, contiguous(of.in_shape))
        weight = Operand("weight", dtype, contiguous(self.case.weight_shape))
        result = Result("out", dtype, contiguous(shape), before * other)
        return Convolution(self.name, of, x, weight, self.case.weight_shape, tuple(operands), (result,),
                           self.case.exact, pool)  # fmt: skip

    def _tiling(self, conv: Convolution) -> Tiling:
        if self.division:
            return self.division(conv)
        ways = best(conv.correlation, UNITS[self.dtype], WAYS, ONE, pool=self.sizes)
        return ways[self.way % len(ways)]

    def lowered(self) -> Lowered:
        """Forward alone, forward that keeps, backward."""
        conv, dtype = self.fused, self.dtype
        further = kept(conv, WANTED, "upstream")
        (result,) = conv.results
        again = replace(conv, name=f"{self.name}_keeping", results=(replace(result, name="out_too"), *further))
        steps = [lower_convolution(each, self._tiling(each), TWO) for each in (conv, again)]
        back = lower_convolution_backward(conv, WANTED if self.gradients else (), "upstream", TWO)
        steps += [lower(each, TWO.sms) if isinstance(each, Program) else each for each in back.steps]
        left, laid = (
            math.prod(conv.made_shape),
            {each.name: each for each in (conv.source, conv.weight, *conv.operands)},
        )
        buffers = [Buffer(each.name, each.dtype, left) for each in further]
        buffers += [Buffer(name, dtype, left) for name in ("out", "out_too")]
        for name in back.results:
            operand = laid[name.removeprefix("grad_")]
            sizes = zip(conv.space(operand), operand.strides, strict=True)
            buffers.append(Buffer(name, dtype, math.prod(n for n, stride in sizes if stride)))
        buffers += [*back.buffers, *(buffer for each in steps for buffer in each.buffers)]
        return Lowered(tuple(kernel for each in steps for kernel in each.kernels), tuple(buffers))


def operands(case: PooledCase, seed: int = 0) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    conv = case.fused

    def drawn(shape: tuple[int, ...], low: int, high: int, over: int = 1) -> torch.Tensor:
        return (torch.randint(low, high + 1, shape, generator=generator) / over).to(DTYPES[case.dtype])

    channels = (conv.made_shape[1],)
    return {
        "x": drawn(conv.correlation.in_shape, -1, 1),
        "weight": drawn(conv.weight_shape, -1, 1),
        "bias": drawn(channels, -2, 2, 2),
        "scale": drawn(channels, -2, 2, 2),  # of all signs, and zero
        "other": drawn(conv.made_shape, -2, 2),
        "upstream": drawn(conv.made_shape, -2, 2),
    }


def wanted(case: PooledCase, known: Tensors) -> Tensors:
    """What PyTorch computes in float64."""
    given = {name: value.double().requires_grad_(name != "upstream") for name, value in known.items()}
    rank = len(case.sizes)
    bias, scale = (given[name].reshape(-1, *[1] * rank) for name in ("bias", "scale"))
    product = case.case.torchs(given["x"], given["weight"])
    value = BEFORE[case.chain][1](product, bias, scale)
    if not case.gradients:
        return _wanted_kept(case, value, product.detach(), given["other"])
    pool = getattr(F, f"{case.kind}_pool{rank}d")
    out = pool(value, case.sizes) * given["other"]
    leaves = [given[name] for name in WANTED]
    gradients = torch.autograd.grad(out, leaves, given["upstream"], allow_unused=True)
    found = {f"grad_{name}": each for name, each in zip(WANTED, gradients, strict=True) if each is not None}
    return {"out": out.detach(), "out_too": out.detach(), **found}


def _wanted_kept(case: PooledCase, value: torch.Tensor, product: torch.Tensor, other: torch.Tensor) -> Tensors:
    """The same without gradients, with what forward keeps for them."""
    rank, sizes, name = len(case.sizes), case.sizes, case.name
    if case.kind == "avg":
        mean = getattr(F, f"avg_pool{rank}d")
        out = (mean(value, sizes) * other).detach()
        return {"out": out, "out_too": out, f"{name}_product": mean(product, sizes)}
    pooled, places = getattr(F, f"max_pool{rank}d")(value.detach(), sizes, return_indices=True)
    out = (pooled * other).detach()
    number, rest = torch.zeros_like(places), places
    for size, extent, step in zip(reversed(sizes), reversed(value.shape[2:]), reversed(contiguous(sizes)), strict=True):
        number, rest = number + rest % extent % size * step, rest // extent
    kept = product.flatten(2).gather(2, places.flatten(2)).reshape(places.shape)
    return {"out": out, "out_too": out, f"{name}_product": kept, f"{name}_choice": number}


NEAR = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}
"""Of the largest value: half types are rounded as they are stored."""


def is_right(built: Built, case: PooledCase, change: Callable[[Tensors], None] = lambda known: None) -> str:
    """Runs a case beside PyTorch; words where it is wrong. `change` is done to what it reads."""
    known = operands(case)
    change(known)
    found = built(case, known)
    for name, right in wanted(case, known).items():
        if name not in found:
            is_read = not right.any() if case.gradients else name.endswith("_product")  # by backward, or not at all
            if is_read:
                continue
            return f"{case.name}: {name} is missing"
        value, right = found[name].double().reshape(right.shape), right.double()
        size = right.nan_to_num(0, 0, 0).abs().max() if right.numel() else torch.tensor(0.0)
        if not torch.allclose(value, right, rtol=0, atol=float(NEAR[case.dtype] * (size + 1)), equal_nan=True):
            error = (value - right).abs().max().item()
            return f"{case.name}: error {error:.2g} in {name}, the largest value is {size:.2g}"
    return ""


@dataclass(frozen=True)
class SpreadCase:
    """Gradients of a case's input and weight from those of its windows; whether threads hold what they spread."""

    case: Case
    sizes: tuple[int, ...]
    is_held: bool

    @property
    def name(self) -> str:
        return f"{self.case.name}_spread"

    @property
    def dtype(self) -> str:
        return self.case.dtype

    @property
    def windows(self) -> tuple[int, ...]:
        return Windows("max", self.sizes, LEAF).outputs(self.case.correlation.out_shape)

    @property
    def wanted(self) -> tuple[str, ...]:
        return ("grad_x", "grad_weight")

    def _way(self, ways: Sequence[Way]) -> Way:
        """One in which threads hold what they spread, or one in which they are furthest from that."""
        pick = min if self.is_held else max
        return pick(ways, key=lambda each: each.spread_rounds(self.sizes))

    def lowered(self) -> Lowered:
        of, dtype, spread = self.case.correlation, self.dtype, Spread(self.sizes, "choice")
        x, weight, grad = (
            Operand(name, dtype, contiguous(shape))
            for name, shape in (("x", of.in_shape), ("weight", self.case.weight_shape), ("upstream", self.windows))
        )
        turned, unit = input_gradient(of), UNITS[dtype]
        result = Result("grad_x", dtype, x.strides, LEAF)
        conv = Convolution(f"{self.name}_input", turned, grad, weight, self.case.weight_shape, (), (result,),
                           self.case.exact, spread=spread)  # fmt: skip
        ways = best(turned, unit, 1000, TWO, (), self.sizes)
        tiling = self._way(ways)
        rest = {"exact": self.case.exact, "gpu": TWO}
        if math.prod(of.phases) > 1:
            divisions = best_divisions(turned, unit, 1000, TWO, (spread, None))
            division = self._way(divisions)
            of_weight = lower_weight_gradient(
                f"{self.name}_weight", turned, grad, x, "grad_weight", division, (spread, None), **rest
            )
        else:
            divisions = best_divisions(of, unit, 1000, TWO, (None, spread))
            division = max(divisions, key=lambda each: (math.prod(each.box) * each.channels) * (1 - 2 * self.is_held))
            of_weight = lower_weight_gradient(
                f"{self.name}_weight", of, x, grad, "grad_weight", division, (None, spread), **rest
            )
        both = [lower_convolution(conv, tiling, TWO), of_weight]
        made = [Buffer("grad_x", dtype, math.prod(of.in_shape))]
        made += [Buffer("grad_weight", dtype, math.prod(self.case.weight_shape))]
        made.append(Buffer("choice", "uint8", 1))  # only its dtype counts here: it is given
        return Lowered(tuple(k for each in both for k in each.kernels), (*made, *(b for e in both for b in e.buffers)))


def is_spread_right(built: Built, case: SpreadCase) -> str:
    """Runs a case beside PyTorch, which is given each element's gradient; words where it is wrong."""
    generator, of = torch.Generator().manual_seed(0), case.case.correlation

    def drawn(shape: tuple[int, ...], most: int) -> torch.Tensor:
        return torch.randint(-most, most + 1, shape, generator=generator).to(DTYPES[case.dtype])

    known = {"x": drawn(of.in_shape, 1), "weight": drawn(case.case.weight_shape, 1)}
    known["upstream"] = drawn(case.windows, 2)
    choice = torch.randint(0, math.prod(case.sizes), case.windows, generator=generator)
    found = built(case, {**known, "choice": choice.to(torch.uint8)})
    given = [known[name].double().requires_grad_() for name in ("x", "weight")]
    product = case.case.torchs(*given)
    right = torch.autograd.grad(
        product, given, spread_out(known["upstream"].double(), choice, case.sizes, product.shape)
    )
    for name, each in zip(("grad_x", "grad_weight"), right, strict=True):
        if name not in case.wanted:
            continue
        error = (found[name].double().reshape(each.shape) - each).abs().max().item()
        if not error <= NEAR[case.dtype] * float(each.abs().max()):
            return f"{case.name}: error {error:.2g} in {name}, the largest value is {each.abs().max():.2g}"
    return ""


def spread_out(grad: torch.Tensor, choice: torch.Tensor, sizes: tuple[int, ...], shape: torch.Size) -> torch.Tensor:
    """Each window's gradient at its chosen element; zeros elsewhere, and where no window is."""
    place = torch.arange(math.prod(sizes)).reshape(sizes).repeat(grad.shape[2:])
    for dim, size in enumerate(sizes):
        grad, choice = (each.repeat_interleave(size, 2 + dim) for each in (grad, choice))
    whole = torch.zeros(shape, dtype=grad.dtype)
    whole[tuple(slice(n) for n in grad.shape)] = torch.where(choice == place, grad, 0)
    return whole
