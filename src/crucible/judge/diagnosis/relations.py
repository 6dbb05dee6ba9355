"""How a candidate's values relate to the oracle's: a factor, an offset, other places, a narrower type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from crucible.judge.verdict.error_map import MOST_VALUES, Fit, Match, Values

LITTLE = 0.02
"""Of the error before: what a relation may leave, where it does not bring the tensor within what is allowed."""
LARGEST = 1e300
"""Bound of what is written down: JSON has no infinity."""
PER_INDEX = 8
"""Elements for each value that is fitted: with fewer a fit proves little."""
MOST_PERMUTED = 256
"""Indices of a dimension whose order is looked for."""
SHIFTS = (-2, -1, 1, 2)
ROUND = (torch.bfloat16, torch.float16)


def values_of(tensor: torch.Tensor) -> Values:
    """The finite ones."""
    kept = tensor[torch.isfinite(tensor)]
    if not kept.numel():
        return Values(0.0, 0.0, 0.0, 0.0, 0.0)
    numbers = (kept.min(), kept.max(), kept.mean(), kept.square().mean().sqrt(), (kept == 0).double().mean())
    return Values(*(_bounded(float(number)) for number in numbers))


def by_sign(want: torch.Tensor, wrong: torch.Tensor) -> tuple[float, float, float]:
    """Share of wrong elements where the oracle's are negative, zero, positive; -1 where there are none."""
    masks = (want < 0, want == 0, want > 0)
    below, at, above = (float(wrong[mask].double().mean()) if bool(mask.any()) else -1.0 for mask in masks)
    return below, at, above


def bounds(want: torch.Tensor, wrong: torch.Tensor) -> tuple[float, float]:
    """Share of the wrong elements where the oracle's is at its least, at its greatest."""
    at = want[wrong]
    if not at.numel():
        return 0.0, 0.0
    return float((at == want.min()).double().mean()), float((at == want.max()).double().mean())


def rounded_to(got: torch.Tensor, want: torch.Tensor) -> str:
    """The narrowest type that holds all of the candidate's values and not the oracle's; empty without one."""
    finite = got[torch.isfinite(got)]
    if finite.numel() < 16:
        return ""
    if bool((finite == finite.round()).all()) and not bool((want == want.round()).all()):
        return "whole numbers"
    for dtype in ROUND:
        if torch.equal(finite.to(dtype).double(), finite) and not torch.equal(want.to(dtype).double(), want):
            return str(dtype)[6:]
    bits = finite.float().view(torch.int32)
    if not bool((bits & 0x1FFF).any()) and torch.equal(finite.float().double(), finite):
        return "TF32"
    return ""


def fits(got: torch.Tensor, want: torch.Tensor, wrong: torch.Tensor, first: int, allowed: float) -> tuple[Fit, ...]:
    """Factors and offsets that leave little of the error; `first` is the sample's first dimension."""
    finite = torch.isfinite(got) & torch.isfinite(want)
    found: list[Fit] = []
    each = range(got.dim())
    for of, mask, dims in (
        ("all", finite, (-1,)),
        ("wrong", finite & wrong, (-1,)),
        ("all", finite, each),
        ("wrong", finite & wrong, each),
    ):
        told = any(fit.of == "all" or (fit.dim < 0 and dims is each) for fit in found)
        if not told:  # one value for all tells more than many
            found += _fits_of(got, want, mask, of, dims, first, allowed)
    return tuple(sorted(found, key=lambda fit: (fit.dim >= 0, fit.of != "all", fit.residual)))


def _fits_of(
    got: torch.Tensor, want: torch.Tensor, mask: torch.Tensor, of: str, dims: Sequence[int], first: int, allowed: float
) -> list[Fit]:
    total = float(want[mask].square().sum())
    if int(mask.sum()) < PER_INDEX or not total:
        return []
    before = float((got[mask] - want[mask]).square().sum() / total) ** 0.5
    found = []
    for dim in dims:
        for what, values, left in _fitted(got, want, mask, dim):
            residual = math.sqrt(max(0.0, left) / total)
            if residual <= max(allowed, LITTLE * before) and residual < before / 4:
                number = dim if dim < 0 else dim + first
                found.append(Fit(what, number, of, values, _bounded(residual), _bounded(before)))
    return found


def _fitted(
    got: torch.Tensor, want: torch.Tensor, mask: torch.Tensor, dim: int
) -> list[tuple[str, tuple[float, ...], float]]:
    """Least-squares factors and offsets, for all or by index of a dimension, with the squares that are left."""
    size = got.shape[dim] if dim >= 0 else 1
    if dim >= 0 and (size < 2 or size > 4096 or int(mask.sum()) < PER_INDEX * size):
        return []
    others = [d for d in range(got.dim()) if d != dim]

    def summed(values: torch.Tensor) -> torch.Tensor:
        kept = torch.where(mask, values, 0.0)
        return kept.sum(others, keepdim=True) if dim >= 0 and others else kept if dim >= 0 else kept.sum()

    product, square, count = summed(got * want), summed(want * want), summed(torch.ones_like(want))
    factor = torch.where(square > 0, product / square, 1.0)
    offset = torch.where(count > 0, summed(got - want) / count.clamp(min=1), 0.0)
    left = [torch.where(mask, got - factor * want, 0.0), torch.where(mask, got - want - offset, 0.0)]
    pairs = (("factor", factor, left[0]), ("offset", offset, left[1]))
    return [(what, _few(values), float(rest.square().sum())) for what, values, rest in pairs]


def matches(got: torch.Tensor, want: torch.Tensor, first: int, allowed: float) -> tuple[Match, ...]:
    """Other places whose values the candidate's are; `first` is the sample's first dimension."""
    if got.numel() < 16 or not bool(torch.isfinite(got).all() & torch.isfinite(want).all()):
        return ()
    before = _distance(got, want)
    found = [
        Match(what, tuple(d + first if d >= 0 else -1 for d in dims), by, _bounded(left), _bounded(before))
        for what, dims, by, left in (*_shifted(got, want), *_turned(got, want), *_permuted(got, want))
        if left <= max(allowed, LITTLE * before) and left < before / 4
    ]
    return tuple(sorted(found, key=lambda match: match.residual > allowed and match.residual)[:4])


_Found = tuple[str, tuple[int, ...], tuple[int, ...], float]


def _shifted(got: torch.Tensor, want: torch.Tensor) -> list[_Found]:
    """By one or two along a dimension or the flattened index; ends are left out."""
    found: list[_Found] = []
    views = [(-1, got.flatten(), want.flatten(), 0)]
    views += [(dim, got, want, dim) for dim in range(got.dim()) if got.dim() > 1]
    for name, g, w, dim in views:
        for by in SHIFTS:
            size = g.shape[dim]
            if size > 2 * abs(by) + 1:
                length = size - abs(by)
                left = _distance(g.narrow(dim, max(0, -by), length), w.narrow(dim, max(0, by), length))
                found.append(("shifted", (name,), (by,), left))
    return found


def _turned(got: torch.Tensor, want: torch.Tensor) -> list[_Found]:
    """Flipped along a dimension; written with two dimensions in the other order."""
    found: list[_Found] = []
    for dim in range(got.dim()):
        if got.shape[dim] > 2:
            found.append(("flipped", (dim,), (), _distance(got.flip(dim), want)))
    for a, b in itertools.combinations(range(got.dim()), 2):
        if got.shape[a] > 1 and got.shape[b] > 1:
            shape = list(got.shape)
            shape[a], shape[b] = shape[b], shape[a]
            found.append(("transposed", (a, b), (), _distance(got.reshape(shape).transpose(a, b), want)))
    return found


def _permuted(got: torch.Tensor, want: torch.Tensor) -> list[_Found]:
    """Indices of a dimension in another order, or one in place of others."""
    found: list[_Found] = []
    for dim in range(got.dim()):
        size = got.shape[dim]
        if not 2 <= size <= MOST_PERMUTED or got.numel() < PER_INDEX * size:
            continue
        g, w = got.movedim(dim, 0).flatten(1), want.movedim(dim, 0).flatten(1)
        distances = g.square().sum(1)[:, None] + w.square().sum(1)[None] - 2 * g @ w.T
        order = distances.argmin(1)
        if not torch.equal(order, torch.arange(size)):
            found.append(("permuted", (dim,), tuple(order[:MOST_VALUES].tolist()), _distance(g, w[order])))
    return found


def _distance(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative L2; against nothing, what there is."""
    size = float(want.square().sum()) or 1.0
    return math.sqrt(float((got - want).square().sum()) / size)


def _few(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(_bounded(float(f"{value:.6g}")) for value in values.flatten()[:MOST_VALUES].tolist())


def _bounded(value: float) -> float:
    return value if math.isfinite(value) and abs(value) < LARGEST else math.copysign(LARGEST, value)
