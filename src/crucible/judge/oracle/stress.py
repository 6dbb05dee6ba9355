"""Stress: contents that a task's own inputs hardly have, each for one rule that kernels break.

Everything here makes tensors out of tensors; whether the reference itself has an answer to them is found elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

LARGE, TINY = 1e3, 1e-6
"""Times the task's own values: exp overflows in float32 from 89 on; of values in 0 to 1 the variance falls to 1e-13,
far below any eps."""
CONSTANT = 0.75
Make = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


@dataclass(frozen=True)
class Contents:
    """One way to change the floating inputs of a case."""

    rule: str
    how: str
    make: Make
    nan: bool = False
    """Whether the answer may hold NaN: then its places must be right."""
    moved: bool = True
    """Whether a right answer may have been computed from inputs moved by a roundoff; that would break ties."""


def negative(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the elements with the other sign, where none is negative."""
    if not tensor.numel() or tensor.min() < 0:
        return tensor
    sign = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    return tensor * sign.to(tensor.dtype)


def tied(tensor: torch.Tensor, _: torch.Generator) -> torch.Tensor:
    """Multiples of half of the rms, so that rows and windows have equal maxima."""
    step = float(tensor.float().pow(2).mean().sqrt()) / 2 or 1.0
    return ((tensor.float() / step).round() * step).to(tensor.dtype)


def with_nan(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _with(tensor, generator, [torch.nan, torch.nan])


def with_infinities(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _with(tensor, generator, [torch.inf, -torch.inf])


def with_denormals(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A third of the elements -0, and denormals of either sign."""
    small = torch.finfo(tensor.dtype).smallest_normal / 8
    return _with(tensor, generator, [-0.0, small, -small] * max(1, tensor.numel() // 9))


def _with(tensor: torch.Tensor, generator: torch.Generator, values: list[float]) -> torch.Tensor:
    """Some elements, one at least that stays, in place of which `values` stand."""
    places = torch.randperm(tensor.numel(), generator=generator)[: min(len(values), max(1, tensor.numel() - 1))]
    changed = tensor.flatten().clone()
    changed[places] = torch.tensor(values[: len(places)], dtype=tensor.dtype)
    return changed.view(tensor.shape)


CONTENTS = (
    Contents("negative values", "half of the values that are never negative with the other sign", negative),
    Contents("large values", f"its own values, times {LARGE:g}", lambda t, _: t * LARGE),
    Contents("tiny values", f"its own values, times {TINY:g}", lambda t, _: t * TINY),
    Contents("constant values", f"{CONSTANT} everywhere", lambda t, _: torch.full_like(t, CONSTANT)),
    Contents("zeros", "0 everywhere", lambda t, _: torch.zeros_like(t)),
    Contents("ties", "multiples of half the rms, so that maxima are equal", tied, moved=False),
    Contents("-0 and denormals", "a third of the values -0 or denormal", with_denormals),
    Contents("NaN", "two elements of each input NaN", with_nan, nan=True),
    Contents("infinities", "an element of each input inf, another -inf", with_infinities, nan=True),
)


def changed(tensors: list[torch.Tensor], contents: Contents, seed: int) -> list[torch.Tensor] | None:
    """The inputs with other floating values; None where these contents change nothing."""
    generator = torch.Generator().manual_seed(seed)
    new = [contents.make(t, generator) if t.is_floating_point() and t.numel() else t for t in tensors]
    same = all(torch.equal(a, b) for a, b in zip(tensors, new, strict=True))
    return None if same else new


def at_boundaries(index: torch.Tensor, rows: int, special: list[int]) -> torch.Tensor:
    """Indices of which many are special (a row for padding), the last, or the first of so many rows."""
    values = torch.tensor([*special, rows - 1, 0], dtype=index.dtype)
    kept = index.flatten().clone()
    places = min(len(kept), max(len(values), len(kept) * 3 // 4))
    kept[:places] = values.repeat(-(-places // len(values)))[:places]
    return kept.view(index.shape)


def repeated(tensor: torch.Tensor) -> torch.Tensor:
    """Its first item in place of every item."""
    return tensor[:1].expand_as(tensor).contiguous() if tensor.dim() else tensor
