"""What a convolution's kernels must compute: by torch in float64, from operands that tensor cores take as they are.

float32 operands that will be rounded to TF32 are drawn so that rounding changes nothing: all divisions then differ
from the product in float64 by the order of float32 sums alone, and what is allowed is tight. The chain behind is
evaluated at the product and a little to both sides of it, since a mask may turn there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

from crucible.algebra.convolution.correlation import Correlation, Product
from crucible.algebra.convolution.fused import GIVEN, PRODUCT, Convolution
from crucible.algebra.convolution.windows import CHOICE, Spread
from crucible.algebra.expression import Expr, name_of
from crucible.algebra.program import Operand, Result
from crucible.graph import TensorType
from crucible.kinds.convolution.ways import RESULT
from crucible.print.written import Lowered
from crucible.schedule.convolution.pairs import LOWEST, maximum_of
from crucible.schedule.convolution.questions import Multiplying, Question, Way, WeightGradient
from crucible.tuning.float64 import evaluate

Tensors = dict[str, torch.Tensor]
Sums = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Over the batch and space, of values and of their sizes: [channels]."""

NEAR = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Of a value, and of the mean value: float32's chains are right to a few units, halves are rounded when stored."""
OFF = 4e-6
"""Of the size of what a product adds up; an H200 was 6.6e-7 off, one term left out is 1 / terms."""
SUMMED = 1e-4
"""Of the sizes of what is added up over an image or the batch, thousands in a row in float32."""
WEIGHTED = 2e-6
"""The same of a weight's gradient, by tensor cores."""
AT_ONCE = 1 << 23
"""Elements that are compared at once: float64 values of a chain's nodes are alive together."""


@dataclass(frozen=True)
class Subject:
    """A question with operands: flat, by name, as they lie in memory."""

    question: Question
    given: Tensors

    def complaint(self, way: Way, made: Mapping[str, torch.Tensor]) -> str:
        """Words for the first result that is wrong; none where all are right. What kernels `made`: see `results`."""
        if isinstance(self.question, WeightGradient):
            return _of_weight(self.question, self.given, made[RESULT])
        return _Judged(self.question.conv, self.given, way, made).complaint()


def operands(question: Question) -> dict[str, TensorType]:
    """What kernels read, flat, by name."""
    found: dict[str, TensorType] = {}
    for operand, shape, spread in _multiplied(question):
        laid = _windows_of(shape, spread)
        found[operand.name] = _flat(_extent(laid, operand.strides), operand.dtype)
        if spread and spread.choices:
            found[spread.choices] = _flat(math.prod(laid), "uint8")
    if isinstance(question, Multiplying):
        made = question.conv.made_shape
        found |= {each.name: _flat(_extent(made, each.strides), each.dtype) for each in question.conv.operands}
    return found


def results(question: Question, lowered: Lowered) -> dict[str, TensorType]:
    """What is looked at, flat, by name: results, and `<name>_parts`, what blocks and items leave of sums."""
    if isinstance(question, WeightGradient):
        return {RESULT: _flat(_weights(question.of), question.source.dtype)}
    conv = question.conv
    found = {r.name: _flat(_extent(conv.made_shape, r.strides), r.dtype) for r in conv.results if not r.sums}
    parts = {f"{name}_parts" for name in [r.name for r in conv.reductions] + [r.name for r in conv.results if r.sums]}
    parts |= {f"{each.name}_parts" for each in conv.crossings}
    found |= {each.name: _flat(each.elements, each.dtype) for each in lowered.buffers if each.name in parts}
    positions = math.prod(conv.made_shape) // conv.made_shape[1]
    whole = [each.name for each in conv.crossings if f"{each.name}_parts" not in found]
    return found | {name: _flat(positions, "float32") for name in whole}


def subject(question: Question, device: torch.device, seed: int = 0) -> Subject:
    """With operands drawn: chains' of a mean that is not 0, so that a part left out of a sum is seen."""
    generator = torch.Generator(device).manual_seed(seed)
    multiplied = {operand.name for operand, _, _ in _multiplied(question)}
    exact = question.conv.exact if isinstance(question, Multiplying) else question.exact
    given: Tensors = {}
    for name, type_ in operands(question).items():
        if type_.dtype == "uint8":
            most = math.prod(next(spread.sizes for _, _, spread in _multiplied(question) if spread))
            given[name] = torch.randint(0, most, type_.shape, generator=generator, device=device, dtype=torch.uint8)
            continue
        value = torch.randn(type_.shape, generator=generator, device=device)
        if name not in multiplied:
            value = value + 0.5
        elif isinstance(question, Multiplying) and name == question.conv.weight.name:
            value = value * _scale(question.conv.correlation)
        rounds = name in multiplied and not exact and type_.dtype == "float32"
        given[name] = _rounded(value) if rounds else value.to(getattr(torch, type_.dtype))
    return Subject(question, given)


def _scale(of: Correlation) -> float:
    """Of weights, so that products are about 1, where chains turn; a power of two."""
    return 2.0 ** -round(math.log2(of.in_channels * max(1, _terms(of))) / 2)


def _flat(elements: int, dtype: str) -> TensorType:
    return TensorType((elements,), (1,), dtype)


def _multiplied(question: Question) -> Iterator[tuple[Operand, Sequence[int], Spread | None]]:
    """Operands of the product, the shape that each is laid over, and how it is spread over that."""
    if isinstance(question, WeightGradient):
        yield question.source, question.of.in_shape, question.spreads[0]
        yield question.grad, question.of.out_shape, question.spreads[1]
    else:
        conv = question.conv
        yield conv.source, conv.correlation.in_shape, conv.spread
        yield conv.weight, conv.weight_shape, None


# operands


def _rounded(value: torch.Tensor) -> torch.Tensor:
    """To TF32, as tensor cores would take it."""
    return ((value.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def _extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of memory."""
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def _weights(of: Correlation) -> int:
    of, taps = of.apart, math.prod(axis.kernel for axis in of.axes)
    return of.groups * of.in_channels * of.out_channels * taps


def _terms(of: Correlation) -> int:
    """Taps of the phase with most of them."""
    return max(sum(product.phase == phase for product in of.products) for phase in range(math.prod(of.phases)))


def _windows_of(shape: Sequence[int], spread: Spread | None) -> tuple[int, ...]:
    sizes = spread.sizes if spread else (1,) * (len(shape) - 2)
    return (*shape[:2], *(n // size for n, size in zip(shape[2:], sizes, strict=True)))


def _laid(operand: Operand, given: Tensors, shape: Sequence[int], spread: Spread | None, images: slice) -> torch.Tensor:
    """Some images of what is multiplied, in float64, spread over its windows' elements."""
    windows = _windows_of(shape, spread)
    value = given[operand.name].as_strided(windows, operand.strides)[images].double()
    if spread is None:
        return value
    for dim, size in enumerate(spread.sizes, 2):
        value = value.repeat_interleave(size, dim)
    if spread.choices:
        chosen = given[spread.choices].reshape(windows)[images]
        for dim, size in enumerate(spread.sizes, 2):
            chosen = chosen.repeat_interleave(size, dim)
        place = torch.arange(math.prod(spread.sizes), device=value.device).reshape(spread.sizes)
        value = value * (chosen == place.repeat([n // s for n, s in zip(value.shape[2:], spread.sizes, strict=True)]))
    rest = [n - m for n, m in zip(shape[2:], value.shape[2:], strict=True)]
    return F.pad(value, [each for n in reversed(rest) for each in (0, n)])


def _behind_front(value: torch.Tensor, front: Expr | None, dtype: str, exact: bool) -> torch.Tensor:
    """Behind the chain in front, as tensor cores get it: operation by operation in float32, as in the kernel (such
    chains have nothing that a compiler would contract), then rounded."""
    if front is None:
        return value
    found = evaluate(front, {name_of(GIVEN): value.float()})
    if dtype != "float32":
        return found.to(getattr(torch, dtype)).double()
    return (found if exact else _rounded(found)).double()


# the product


def _read(of: Correlation, x: torch.Tensor, shift: Sequence[int]) -> torch.Tensor:
    """What positions q read by one tap, zeros outside: [images, channels, *steps]."""
    for dim, (axis, by) in enumerate(zip(of.axes, shift, strict=True), 2):
        last = (axis.steps - 1) * axis.in_stride + by
        before, after = max(0, -by), max(0, last - axis.extent + 1)
        x = F.pad(x, [0, 0] * (x.dim() - 1 - dim) + [before, after])
        x = x.narrow(dim, by + before, last - by + 1)[(slice(None),) * dim + (slice(None, None, axis.in_stride),)]
    return x


def multiplied(of: Correlation, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The correlation of some images by its definition; `weight` is flat."""
    of = of.apart
    made = x.new_zeros((x.shape[0], *of.out_shape[1:]))
    steps = [axis.steps for axis in of.axes]
    for number, phase in enumerate(itertools.product(*map(range, of.phases))):
        sums = x.new_zeros((x.shape[0], of.groups, of.out_channels, math.prod(steps)))
        for product in (each for each in of.products if each.phase == number):
            read = _read(of, x, product.shift).reshape(x.shape[0], of.groups, of.in_channels, -1)
            sums += _tap(of, weight, product) @ read
        at = (slice(None), slice(None), *(slice(p, None, n) for p, n in zip(phase, of.phases, strict=True)))
        into = made[at]
        inside = tuple(slice(0, n) for n in into.shape[2:])
        into.copy_(sums.reshape(x.shape[0], -1, *steps)[(slice(None), slice(None), *inside)])
    return made


def _tap(of: Correlation, weight: torch.Tensor, product: Product) -> torch.Tensor:
    """[groups, out channels, in channels]"""
    return weight.as_strided((of.groups, of.out_channels, of.in_channels), of.weight_strides, product.weight)


def _chunks(batch: int, elements: int) -> Iterator[slice]:
    """Images that are compared at once."""
    few = max(1, AT_ONCE // max(1, elements))
    return (slice(first, min(first + few, batch)) for first in range(0, batch, few))


# chains


@dataclass
class _Judged:
    """What the kernels of one division made, held against what they should have."""

    conv: Convolution
    given: Tensors
    way: Way
    made: Mapping[str, torch.Tensor]

    def complaint(self) -> str:
        conv = self.conv
        zeros = torch.zeros(conv.made_shape[1], dtype=torch.float64, device=self.given[conv.source.name].device)
        sums = {each.name: (zeros.clone(), zeros.clone()) for each in conv.results if each.sums}
        for images in _chunks(conv.correlation.batch, math.prod(conv.correlation.out_shape[1:])):
            said = self._of_images(images, sums)
            if said:
                return said
        for result in (each for each in conv.results if each.sums):
            total, size = sums[result.name]
            said = _off(result.name, self._parts(f"{result.name}_parts").sum(0), total, total, SUMMED * size)
            if said:
                return said
        return ""

    def _of_images(self, images: slice, sums: Sums) -> str:
        """Of what some images give; their part of sums over the batch is added up."""
        conv = self.conv
        of, x = conv.correlation, _laid(conv.source, self.given, conv.correlation.in_shape, conv.spread, images)
        x = _behind_front(x, conv.front, conv.source.dtype, conv.exact)
        weight = self.given[conv.weight.name].double()
        product = multiplied(of, x, weight)
        off = OFF * float(x.abs().mean() * weight.abs().mean()) * of.in_channels * _terms(of)
        values = {each.name: self._operand(each, images) for each in conv.operands}
        product, said = self._pooled(product, values, images)
        sides = [{**values, PRODUCT: product + side * off} for side in (0, -1, 1)]
        said = said or self._results(sides, images, sums) or self._reductions(sides, images)
        return said or self._crossings(sides, images)

    def _operand(self, operand: Operand, images: slice) -> torch.Tensor:
        return self.given[operand.name].as_strided(self.conv.made_shape, operand.strides)[images].double()

    def _pooled(self, product: torch.Tensor, values: Tensors, images: slice) -> tuple[torch.Tensor, str]:
        """What is left of windows. Which of several that are nearly the largest is chosen is the kernel's to say."""
        pool = self.conv.pool
        if pool is None:
            return product, ""
        shape = self.conv.made_shape[2:]
        windows = product
        for dim, (n, size) in enumerate(zip(shape, pool.sizes, strict=True), 2):
            windows = windows.narrow(dim, 0, n * size)
        for dim, (n, size) in enumerate(zip(shape, pool.sizes, strict=True)):
            windows = windows.unflatten(2 + 2 * dim, (n, size))
        rank = len(shape)
        inner, outer = [3 + 2 * d for d in range(rank)], [2 + 2 * d for d in range(rank)]
        windows = windows.permute(0, 1, *outer, *inner).flatten(2 + rank)
        if pool.kind == "avg":
            return windows.mean(-1), ""
        shared = {name: value.unsqueeze(-1) for name, value in values.items()}
        compared = evaluate(pool.before, {**shared, PRODUCT: windows}).expand_as(windows)
        kept = next((each for each in self.conv.results if each.expr is CHOICE), None)
        if kept is None:
            return windows.gather(-1, compared.argmax(-1, keepdim=True)).squeeze(-1), ""
        chosen = self._written(kept, images).long()
        if int(chosen.max()) >= pool.elements:
            return product, f"{kept.name} names element {int(chosen.max())} of windows of {pool.elements}"
        largest, taken = compared.amax(-1), compared.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
        near = OFF * math.sqrt(self.conv.correlation.in_channels * _terms(self.conv.correlation)) + NEAR["float32"]
        return windows.gather(-1, chosen.unsqueeze(-1)).squeeze(-1), _off(
            kept.name, taken, largest, largest, near * (largest.abs() + largest.abs().mean())
        )

    def _written(self, result: Result, images: slice) -> torch.Tensor:
        return self.made[result.name].as_strided(self.conv.made_shape, result.strides)[images]

    def _results(self, sides: list[Tensors], images: slice, sums: Sums) -> str:
        shape = sides[0][PRODUCT].shape
        for result in (each for each in self.conv.results if each.expr is not CHOICE):
            found = [evaluate(result.expr, side).expand(shape) for side in (sides[:1] if result.sums else sides)]
            if result.sums:
                along = [dim for dim in range(len(shape)) if dim != 1]
                for total, part in zip(sums[result.name], (found[0], found[0].abs()), strict=True):
                    total += part.sum(along)
                continue
            low, high = torch.stack(found).amin(0), torch.stack(found).amax(0)
            allowed = NEAR[result.dtype] * (found[0].abs() + found[0].abs().mean())
            said = _off(result.name, self._written(result, images).double(), low, high, allowed)
            if said:
                return said
        return ""

    # sums

    @cached_property
    def _channels(self) -> int:
        """Of a group, those that fill its last tile included."""
        return int(self.way.padded_channels)

    def _parts(self, name: str) -> torch.Tensor:
        """[parts, channels of all groups] of what blocks, or the items of all images, left."""
        of = self.conv.correlation
        parts: torch.Tensor = self.made[name].double().reshape(-1, of.groups, self._channels)
        return parts[..., : of.out_channels].flatten(1)

    def _reductions(self, sides: list[Tensors], images: slice) -> str:
        """Of the space of some images: their items' parts, put together."""
        reductions, rank = self.conv.reductions, len(self.conv.correlation.axes)
        space = tuple(range(2, 2 + rank))
        for each in reductions:
            parts = self._of_rows(each.name, images)
            largest = maximum_of(each, reductions)
            found = [evaluate(each.expr, side).expand(sides[0][PRODUCT].shape) for side in sides]
            if each.kind == "max":
                total = parts.amax(1)
                ends = [value.amax(space) for value in found]
                for side, end in zip(sides, ends, strict=True):
                    side[each.name] = end.reshape(*end.shape, *[1] * rank)
                low, high = torch.stack(ends).amin(0), torch.stack(ends).amax(0)
                allowed = NEAR["float32"] * (ends[0].abs() + ends[0].abs().mean())
            else:
                if largest is not None:
                    own, all_ = self._of_rows(largest.name, images), sides[0][largest.name].flatten(2)[..., 0]
                    parts = parts * (own.clamp(min=LOWEST) - all_.unsqueeze(1)).exp()
                total = parts.sum(1)
                ends = [value.sum(space) for value in found]
                low, high = torch.stack(ends).amin(0), torch.stack(ends).amax(0)
                allowed = SUMMED * found[0].abs().sum(space)
            said = _off(each.name, total, low, high, allowed)
            if said:
                return said
        return ""

    def _crossings(self, sides: list[Tensors], images: slice) -> str:
        """Of the channels of some images' positions, which blocks may have in parts."""
        batch, _, *space = self.conv.made_shape
        for each in self.conv.crossings:
            name = each.name if each.name in self.made else f"{each.name}_parts"
            parts = self.made[name].double().reshape(-1, batch, *space)
            found = [evaluate(each.expr, side).expand(sides[0][PRODUCT].shape) for side in sides]
            ends = torch.stack([value.amax(1) if each.kind == "max" else value.sum(1) for value in found])
            size = found[0].abs().sum(1) if each.kind == "sum" else ends[0].abs() + ends[0].abs().mean()
            total = parts.amax(0) if each.kind == "max" else parts.sum(0)
            if said := _off(each.name, total[images], ends.amin(0), ends.amax(0), NEAR["float32"] * size):
                return said
        return ""

    def _of_rows(self, name: str, images: slice) -> torch.Tensor:
        """[images, items of an image, channels]"""
        parts = self._parts(f"{name}_parts")
        return parts.reshape(self.conv.correlation.batch, -1, parts.shape[1])[images]


def _of_weight(question: WeightGradient, given: Tensors, made: torch.Tensor) -> str:
    of = question.of.apart
    shape = (of.groups, of.out_channels, of.in_channels)
    total, size = (torch.zeros(_weights(of), dtype=torch.float64, device=made.device) for _ in range(2))
    for images in _chunks(of.batch, math.prod(of.out_shape[1:])):
        x = _laid(question.source, given, of.in_shape, question.spreads[0], images)
        grad = _laid(question.grad, given, of.out_shape, question.spreads[1], images)
        x, grad = (
            _behind_front(value, front, question.source.dtype, question.exact)
            for value, front in zip((x, grad), question.fronts, strict=True)
        )
        grad = grad.reshape(len(grad), of.groups, of.out_channels, -1)
        for product in of.products:
            read = _read(of, x, product.shift).reshape(len(x), of.groups, of.in_channels, -1)
            for into, one, other in ((total, grad, read), (size, grad.abs(), read.abs())):
                into.as_strided(shape, of.weight_strides, product.weight).add_((one @ other.transpose(2, 3)).sum(0))
    stored = NEAR[question.source.dtype] if question.source.dtype != "float32" else 0.0
    return _off("the weight's gradient", made.double(), total, total, WEIGHTED * size + stored * total.abs())


def _off(name: str, found: torch.Tensor, low: torch.Tensor, high: torch.Tensor, allowed: torch.Tensor) -> str:
    """Words where something lies beyond what is allowed to both sides; NaN must be NaN."""
    beyond = torch.maximum(low - found, found - high)
    wrong = ~((beyond <= allowed) | (found.isnan() & (low.isnan() | high.isnan())) | (found == low) | (found == high))
    count = int(wrong.sum())
    if not count:
        return ""
    worst = float((beyond - allowed).masked_fill(~wrong, -math.inf).nan_to_num(math.inf).max())
    return f"{name}: {count} of {found.numel()} values are wrong, by up to {worst:.3g} more than rounding explains"
