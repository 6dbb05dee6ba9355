"""Convolutions beside PyTorch's, and their kernels on the emulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from launcher import Run, emulated, loaded

from crucible.algebra.convolution.correlation import Correlation, convolution, input_gradient, transposed_convolution
from crucible.algebra.convolution.fused import GIVEN, LEAF, Convolution
from crucible.algebra.expression import Expr, parameter, tensor
from crucible.algebra.program import Operand, Reduction, Result, contiguous
from crucible.gpus import known_gpu
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.convolution.weights import lower_weight_gradient
from crucible.print.written import Lowered
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.tile_choice import tile
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.weight_division import best_divisions

Tensors = dict[str, torch.Tensor]
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
    "uint8": torch.uint8,
}
TWO = replace(known_gpu("h200"), sms=2)
"""So that blocks take several items each."""
ONE = replace(TWO, sms=1)
"""Which is never idle: tiles are those that large problems get."""


@dataclass(frozen=True)
class Case:
    """A correlation, the same in PyTorch (of x and weight), and how its kernel is divided."""

    name: str
    correlation: Correlation
    weight_shape: tuple[int, ...]
    torchs: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    dtype: str = "float32"
    chain: str = "none"
    tiling: Callable[[Tiling], Tiling] = lambda tiling: tiling
    exact: bool = False
    front: str = "none"

    @property
    def fused(self) -> Convolution:
        of = self.correlation
        expr, operands = CHAINS[self.chain](of, self.dtype)
        results = [Result("out", self.dtype, contiguous(of.out_shape), expr)] if self.chain not in ALONE else []
        sums = {"total": expr, "other_total": -expr} if self.chain == "summed" else {"total": expr}
        if self.chain in SUMS:
            results += [Result(name, "float32", channel_strides(of), each, sums=True) for name, each in sums.items()]
        x = Operand("x", self.dtype, contiguous(of.in_shape))
        weight = Operand("weight", self.dtype, contiguous(self.weight_shape))
        front = FRONTS[self.front][0]
        return Convolution(
            self.name, of, x, weight, self.weight_shape, operands, tuple(results), self.exact, front=front
        )

    @property
    def divided(self) -> Tiling:
        found = tile(self.correlation, UNITS[self.dtype], ONE)
        assert found is not None
        return self.tiling(found)

    @property
    def padded_channels(self) -> int:
        """Of all blocks, what lies outside included."""
        return self.divided.padded_channels

    def lowered(self) -> Lowered:
        return lower_convolution(self.fused, self.divided, gpu=TWO)


@dataclass(frozen=True)
class Beside(Case):
    """With sums over an image's space beside its result, as norms take them of it: around a number of the channel."""

    @property
    def fused(self) -> Convolution:
        conv, shift = super().fused, parameter("shift", self.dtype)
        own = Operand("shift", self.dtype, channel_strides(self.correlation), shared=True)
        reductions = (Reduction("off", "sum", LEAF - shift), Reduction("square", "sum", (LEAF - shift).square()))
        return replace(conv, operands=(*conv.operands, own), reductions=reductions)


def beside(case: Case) -> Beside:
    return Beside(**case.__dict__)


@dataclass(frozen=True)
class Crossing(Case):
    """With the least over its channels and their sum, for each position, beside its result or without it."""

    writes: bool = True

    @property
    def fused(self) -> Convolution:
        conv = super().fused
        (result,) = conv.results
        found = (Reduction("least", "max", -result.expr), Reduction("across", "sum", result.expr * 0.5))
        return replace(conv, results=conv.results if self.writes else (), crossings=found)


def crossing(case: Case, *, writes: bool = True) -> Crossing:
    return Crossing(**case.__dict__, writes=writes)


def crossed(case: Case, reduction: Reduction, found: Mapping[str, Any]) -> Any:
    """What a kernel left of a reduction over channels, as [image, *space]; blocks may have parts of them."""
    batch, _, *space = case.correlation.out_shape
    name = f"{reduction.name}_parts" if case.divided.channel_tiles > 1 else reduction.name
    parts = found[name].reshape(-1, batch, *space)
    if reduction.kind == "sum":
        return parts.sum(0)
    return parts.max(0) if isinstance(parts, np.ndarray) else parts.amax(0)


def row_sums(case: Case, parts: Any) -> Any:
    """Of what `<reduction>_parts` hold, as [image][channel]."""
    of, way = case.correlation, case.divided
    each = parts.reshape(of.batch, way.parts_of_image, way.channel_tiles * way.channels)
    return each.sum(1)[:, : of.out_channels]


FRONTS: dict[str, tuple[Expr | None, Callable[[torch.Tensor], torch.Tensor]]] = {
    "none": (None, lambda x: x),
    "bent": (GIVEN.leaky_relu(0.5), lambda x: F.leaky_relu(x, 0.5)),
    "clamped": ((GIVEN * 2).clamp(-1, 0.5), lambda x: (x * 2).clamp(-1, 0.5)),
}
"""Chains in front."""


def channel_strides(of: Correlation) -> tuple[int, ...]:
    return tuple(1 if dim == 1 else 0 for dim in range(len(of.out_shape)))


def _biased(of: Correlation, dtype: str) -> tuple[Expr, tuple[Operand, ...]]:
    bias, other = parameter("bias", dtype), tensor("other", dtype)
    expr = ((LEAF + bias).leaky_relu(0.2) + other).clamp(-3, 3)
    strides = contiguous(of.out_shape)
    return expr, (Operand("bias", dtype, channel_strides(of), shared=True), Operand("other", dtype, strides))


def _shifted(of: Correlation, dtype: str) -> tuple[Expr, tuple[Operand, ...]]:
    bias = parameter("bias", dtype)
    return (LEAF + bias).leaky_relu(0.2), (Operand("bias", dtype, channel_strides(of), shared=True),)


def _scaled(of: Correlation, dtype: str) -> tuple[Expr, tuple[Operand, ...]]:
    expr, operands = _shifted(of, dtype)
    return expr * tensor("other", dtype), (*operands, Operand("other", dtype, contiguous(of.out_shape)))


def _of_two(of: Correlation, dtype: str) -> tuple[Expr, tuple[Operand, ...]]:
    expr, operands = _scaled(of, dtype)
    return expr + tensor("upstream", dtype), (*operands, Operand("upstream", dtype, contiguous(of.out_shape)))


SUMS = ("sums", "summed", "of_two", "alone", "alone_scaled")
"""Chains whose results are added up for each channel as well; of the last ones nothing else is left."""
ALONE = ("alone", "alone_scaled")
CHAINS: dict[str, Callable[[Correlation, str], tuple[Expr, tuple[Operand, ...]]]] = {
    "none": lambda of, dtype: (LEAF, ()),
    "sums": lambda of, dtype: (LEAF, ()),
    "biased": _biased,
    "shifted": _shifted,
    "summed": _scaled,
    "of_two": _of_two,
    "alone": _shifted,
    "alone_scaled": _scaled,
}


def forward(name: str, shape: Sequence[int], made: int, kernel: Sequence[int], stride: int = 1, padding: int = 0,
            dilation: int = 1, groups: int = 1, **rest: object) -> Case:  # fmt: skip
    """A convolution."""
    rank, weight = len(kernel), (made, shape[1] // groups, *kernel)
    each = ([stride] * rank, [padding] * rank, [dilation] * rank)
    conv = getattr(F, f"conv{rank}d")
    of = convolution(shape, weight, *each, groups)
    return Case(name, of, weight, lambda x, w: conv(x, w, None, *each, groups), **rest)  # type: ignore[arg-type]


def transposed(name: str, shape: Sequence[int], made: int, kernel: Sequence[int], stride: int = 1, padding: int = 0,
               output_padding: int = 0, dilation: int = 1, groups: int = 1, **rest: object) -> Case:  # fmt: skip
    """A transposed convolution."""
    rank, weight = len(kernel), (shape[1], made // groups, *kernel)
    conv = getattr(F, f"conv_transpose{rank}d")
    lists = [[each] * rank for each in (stride, padding, output_padding, dilation)]
    of = transposed_convolution(shape, weight, *lists, groups)
    given = (stride, padding, output_padding, groups, dilation)
    return Case(name, of, weight, lambda x, w: conv(x, w, None, *given), **rest)  # type: ignore[arg-type]


def backward(case: Case) -> Case:
    """The gradient of a case's input, from that of its output."""
    shape = case.correlation.in_shape

    def gradient(grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x = torch.zeros(shape, dtype=grad.dtype, requires_grad=True)
        return torch.autograd.grad(case.torchs(x, weight), x, grad)[0]

    of = input_gradient(case.correlation)
    return Case(f"{case.name}_grad", of, case.weight_shape, gradient, case.dtype, tiling=case.tiling, exact=case.exact)


@dataclass(frozen=True)
class WeightCase:
    """The gradient of a case's weight, divided in one of the most promising ways; of a transposed convolution input and
    gradient change places."""

    case: Case
    way: int = 0

    @property
    def name(self) -> str:
        return f"{self.case.name}_weight{self.way or ''}"

    @property
    def dtype(self) -> str:
        return self.case.dtype

    @property
    def correlation(self) -> Correlation:
        of = self.case.correlation
        return input_gradient(of) if self.is_turned else of

    @property
    def is_turned(self) -> bool:
        return math.prod(self.case.correlation.phases) > 1

    @property
    def division(self) -> Any:
        divisions = best_divisions(self.correlation, UNITS[self.case.dtype], 8, ONE)
        return divisions[self.way % len(divisions)]

    def lowered(self) -> Lowered:
        of, dtype = self.correlation, self.case.dtype
        source = Operand("source", dtype, contiguous(of.in_shape))
        grad = Operand("grad", dtype, contiguous(of.out_shape))
        front = FRONTS[self.case.front][0]
        fronts = (None, front) if self.is_turned else (front, None)
        return lower_weight_gradient(
            self.name, of, source, grad, "result", self.division, exact=self.case.exact, fronts=fronts, gpu=TWO
        )


class Buildable(Protocol):
    """What has kernels over tensors of known names; the results of all but the cases above are among its buffers."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    def lowered(self) -> Lowered: ...


@dataclass(frozen=True)
class Built:
    """All kernels of some cases."""

    run: Run
    lowered: dict[str, Lowered]
    first: dict[str, int]
    device: str

    def __call__(self, case: Buildable, known: Tensors) -> Tensors:
        """Runs a case; what it writes is full of 7 before."""
        lowered = self.lowered[case.name]
        known = {name: tensor.to(self.device) for name, tensor in known.items()}
        known = {b.name: self._full((b.elements,), b.dtype) for b in lowered.buffers} | known
        if isinstance(case, WeightCase):
            known["result"] = torch.full_like(known["weight"], 7)
        elif isinstance(case, Case):
            known["out"] = self._full(case.correlation.out_shape, case.dtype)
            batch, _, *space = case.correlation.out_shape
            known |= {each.name: self._full((batch, *space), "float32") for each in case.fused.crossings}
        for number, kernel in enumerate(lowered.kernels, self.first[case.name]):
            self.run(number, [known[name] for name in (*kernel.reads, *kernel.writes)])
        return {name: tensor.cpu() for name, tensor in known.items()}

    def _full(self, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        return torch.full(shape, 7, dtype=DTYPES[dtype], device=self.device)


def build(cases: Sequence[Buildable], load: Callable[..., Any] = emulated,
          device: str = "cpu", builds: int = 1) -> Built:  # fmt: skip
    """Kernels of all cases in so many extensions, which `load` loads as `load_inline` does."""
    lowered = {case.name: case.lowered() for case in cases}
    assert len(lowered) == len(cases), "two cases have one name"
    names = ("x", "weight", "out", "bias", "other", "source", "grad", "result", "scale", "upstream", "shift")
    crossed = dict.fromkeys(("least", "across"), "float32")
    buffers = [{b.name: b.dtype for b in lowered[case.name].buffers} for case in cases]
    types = [dict.fromkeys(names, case.dtype) | crossed | of for case, of in zip(cases, buffers, strict=True)]
    run = loaded("convolutions", list(lowered.values()), types, load, builds)
    first, number = {}, 0
    for name, each in lowered.items():
        first[name] = number
        number += len(each.kernels)
    return Built(run, lowered, first, device)


def operands(case: Case, seed: int = 0) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    of = case.correlation

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(DTYPES[case.dtype])

    return {
        "x": laid(drawn(*of.in_shape), case.fused.source.strides),
        "weight": drawn(*case.weight_shape),
        "bias": drawn(of.out_shape[1]),
        "other": drawn(*of.out_shape),
        "upstream": drawn(*of.out_shape),
        "shift": drawn(of.out_shape[1]),
    }


def laid(value: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The same, in memory as a kernel reads it."""
    return value.new_empty(value.numel()).as_strided(value.shape, strides).copy_(value)


def wanted(case: Case, known: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """What a case should compute in float64, of operands rounded as tensor cores round them; and the size of what is
    added up in each product."""
    x, weight = (rounded(given, case).double() for given in (FRONTS[case.front][1](known["x"]), known["weight"]))
    product = case.torchs(x, weight)
    size = case.torchs(x.abs(), weight.abs())
    if case.chain not in ("none", "sums"):
        shaped = known["bias"].double().reshape(-1, *[1] * (product.dim() - 2))
        product = F.leaky_relu(product + shaped, 0.2)
    if case.chain == "biased":
        product = (product + known["other"].double()).clamp(-3, 3)
    if case.chain in ("summed", "of_two", "alone_scaled"):
        product, size = product * known["other"].double(), size * known["other"].double().abs()
    if case.chain == "of_two":
        product = product + known["upstream"].double()
    return product, size


def wanted_of_weight(case: Case, known: Tensors, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradient of the weight in float64 and the size of what is added up."""
    found, given = [], FRONTS[case.front][1](known["x"])
    for x, upstream in ((rounded(given, case), rounded(grad, case)), (given.abs(), grad.abs())):
        weight = torch.zeros(case.weight_shape, dtype=torch.float64, requires_grad=True)
        found.append(torch.autograd.grad(case.torchs(x.double(), weight), weight, upstream.double())[0])
    return found[0], found[1]


def rounded(value: torch.Tensor, case: Case) -> torch.Tensor:
    """To TF32, to nearest, ties away from zero or to even; half types are what they are, and so is float32 where it is
    exact."""
    if value.dtype != torch.float32 or case.exact:
        return value
    bits = value.view(torch.int32)
    half = 0xFFF + (bits >> 13 & 1) if TO_EVEN else 0x1000
    return ((bits + half) & ~0x1FFF).view(torch.float32)


TO_EVEN = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
"""How ties are rounded: by `cvt.rn.tf32`, or by `cvt.rna.tf32` where there is no other, as on the emulator."""
NEAR = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
"""Of the size of what is added up: operands are compared as tensor cores round them."""
EXACT = 2e-6 if torch.cuda.is_available() else 5e-7
"""Of three products for one. Tensor cores cut sums off where the emulator rounds them: 6.6e-7 was seen
on an H200; a part of an operand left out is 1e-5 and more."""


def upstream_of(case: Case, seed: int = 1) -> torch.Tensor:
    """A gradient of the output, drawn otherwise than the input. Sums of squares lose with each addition that tensor
    cores cut off: 2.3e-6 and 2.6e-6 of 1,008 to 2,720 of them on an H200, where other sums were 1e-7 off."""
    drawing = torch.Generator().manual_seed(seed)
    return torch.randn(case.correlation.out_shape, generator=drawing).to(DTYPES[case.dtype])


def is_right(built: Built, case: Case | WeightCase) -> str:
    """Runs a case beside PyTorch; words where it is wrong."""
    of = case.case if isinstance(case, WeightCase) else case
    known = operands(of)
    if isinstance(case, WeightCase):
        x, grad = known["x"], upstream_of(of)
        known |= {"source": grad, "grad": x} if case.is_turned else {"source": x, "grad": grad}
        (right, size), found = wanted_of_weight(of, known, grad), built(case, known)["result"]
    else:
        (right, size), found = wanted(of, known), built(case, known)["out"]
        size = size + right.abs()
    if found.shape != right.shape:
        return f"{case.name}: {tuple(found.shape)} instead of {tuple(right.shape)}"
    error = ((found.double() - right).abs() / (size + 0.05)).max().item()
    allowed = EXACT if of.exact else NEAR[of.dtype]
    return "" if error <= allowed else f"{case.name}: error {error:.2g} of what is added up, {allowed} allowed"


def sums_are_right(built: Built, case: Case) -> str:
    """Runs a case by warpgroups whose chain is added up for each channel; words where what they add up is wrong."""
    known, of = operands(case), case.correlation
    found = built(case, known)
    right, size = (each.transpose(0, 1).flatten(1).sum(1) for each in wanted(case, known))
    sums = [each for each in case.fused.results if each.sums]
    assert sums
    for each, sign in zip(sums, (1, -1), strict=False):
        parts = found[f"{each.name}_parts"].reshape(-1, case.padded_channels).double().sum(0)[: of.out_channels]
        error = ((parts - sign * right).abs() / (size + right.abs())).max().item()
        if not error < 2e-6:
            return f"{case.name}: error {error:.2g} of what is added up, in {each.name}"
    return ""


def crossings_are_right(built: Built, case: Crossing) -> str:
    """Runs a case that is reduced over channels; words where it is wrong."""
    known = operands(case)
    found, (right, size) = built(case, known), wanted(case, known)
    for each, end in zip(case.fused.crossings, ((-right).amax(1), right.sum(1) * 0.5), strict=True):
        error = ((crossed(case, each, found).double() - end).abs() / size.sum(1)).max().item()
        if not error < 2e-6:
            return f"{case.name}: error {error:.2g} of what is added up, in {each.name}"
    return "" if case.writes == bool((found["out"] != 7).any()) else f"{case.name}: the result"


def row_sums_are_right(built: Built, case: Beside) -> str:
    """Runs a case whose product is added up over space beside its result; words where a sum is wrong."""
    known = operands(case)
    found = built(case, known)
    x, weight = (rounded(known[name], case).double() for name in ("x", "weight"))
    size = case.torchs(x.abs(), weight.abs())
    off = case.torchs(x, weight) - known["shift"].double().reshape(-1, *[1] * (size.dim() - 2))
    size = size + known["shift"].double().abs().reshape(-1, *[1] * (size.dim() - 2))
    for name, right, beside in (("off", off, size), ("square", off**2, size**2)):
        parts = row_sums(case, found[f"{name}_parts"].double())
        error = ((parts - right.flatten(2).sum(2)).abs() / beside.flatten(2).sum(2)).max().item()
        if not error < 2e-6:
            return f"{case.name}: error {error:.2g} of what is added up, in {name}"
    return ""
