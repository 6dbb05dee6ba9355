"""Where a reference's gradient jumps within reach of the contract's roundings: the two largest of a pool's window as
good as equal, a value at the knee of a LeakyReLU.

Two right candidates may fall on different sides there, and their gradients then differ by all of the jump, which no
tolerance that still tells float32 from TF32 can allow: of 8.4 million windows of a pool behind a convolution one to six
went to another element where all was float32 (`benchmarks/notes.md`). So nothing is pulled back through such outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from crucible.judge.boundary.bundles import put_together, take_apart
from crucible.judge.oracle.reference import Reference

DIRECTIONS = 4
"""In which all is moved, forth and back: one alone misses a kink along which it leads."""
REACH = 2048.0
"""Units of roundoff by which all is moved: by 1.2e-4, where a right forward may be 1e-6 off. Of 36 windows of a pool
that were within 4e-6 of a tie one direction missed 2, four none."""
BENT = 0.1
"""A kink moves an output further to one side than to the other, by this part of both at least. Smooth outputs, REACH
roundoffs of their curvature: 1e-4."""
ROUNDED = 1e-3
"""Of REACH roundoffs of the output itself: bends of less than this are float64's own rounding."""
MOST = 0.01
"""Of an output's elements. Where there would be more they are no exceptions, and the output is left as it is."""


def kinks(
    reference: Reference, state: dict[str, torch.Tensor], parts: Iterable[Any], unit_roundoff: float, seed: int
) -> list[torch.Tensor]:
    """Whether each element of each floating output is near a kink, flat and on the CPU: found by moving all floating
    inputs and weights forth and back, in float64. `parts` are consecutive parts of the batch."""
    masks = [_of_part(reference, state, inputs, REACH * unit_roundoff, seed) for inputs in parts]
    return [torch.cat(of_output) for of_output in zip(*masks, strict=True)]


def positions(masks: Sequence[torch.Tensor]) -> torch.Tensor:
    """Where any of an output's masks is set; nowhere, if one is set more often than kinks are."""
    if any(mask.sum() > MOST * len(mask) for mask in masks):
        return torch.empty(0, dtype=torch.int64)
    return torch.stack([*masks]).any(0).nonzero().flatten()


def _of_part(
    reference: Reference, state: dict[str, torch.Tensor], inputs: Any, reach: float, seed: int
) -> list[torch.Tensor]:
    def outputs(by: float, direction: int) -> list[torch.Tensor]:
        return _outputs(reference, *_moved(state, inputs, by, seed + direction, reference.device))

    return [mask.flatten().cpu() for mask in near_kinks(outputs, reach)]


def near_kinks(outputs: Callable[[float, int], list[torch.Tensor]], reach: float) -> list[torch.Tensor]:
    """Whether each element is near a kink, of the outputs of what is moved by so much in a direction of that number."""
    middle = outputs(0.0, 0)
    found = [torch.zeros_like(each, dtype=torch.bool) for each in middle]
    for direction in range(DIRECTIONS):
        above, below = (outputs(sign * reach, direction) for sign in (1, -1))
        for mask, value, up, down in zip(found, middle, above, below, strict=True):
            mask |= is_bent(value, up, down, reach)
    return found


def is_bent(middle: torch.Tensor, above: torch.Tensor, below: torch.Tensor, reach: float) -> torch.Tensor:
    """Of values of a function and those to both sides, by `reach` of what it is of: whether there is a kink between."""
    bend = (above + below - 2 * middle).abs()
    return (bend > BENT * (above - below).abs()) & (bend > ROUNDED * reach * middle.abs())


def _outputs(reference: Reference, state: dict[str, torch.Tensor], inputs: Any) -> list[torch.Tensor]:
    leaves = reference.evaluate(state, inputs, dtype=torch.float64).outputs
    return [leaf.tensor for leaf in leaves if leaf.tensor.is_floating_point()]


def _moved(
    state: dict[str, torch.Tensor], inputs: Any, reach: float, seed: int, device: torch.device
) -> tuple[dict[str, torch.Tensor], Any]:
    """Each element by up to `reach` of itself, those of one seed in one direction."""
    generator = torch.Generator(device).manual_seed(seed)

    def move(value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        value = value.to(device, torch.float64)
        shift = torch.rand(value.shape, generator=generator, dtype=value.dtype, device=device) * 2 - 1
        return value * (1 + reach * shift)

    structure, leaves = take_apart(inputs, "input")
    moved = {name: move(value) for name, value in state.items()}
    return moved, put_together(structure, [move(leaf.tensor) for leaf in leaves])
