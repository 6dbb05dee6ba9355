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
from crucible.judge.oracle.noise import perturbed
from crucible.judge.oracle.reference import Reference

DIRECTIONS = 4
"""In which all is moved, forth and back: one alone misses a kink along which it leads."""
REACH = 2048.0
"""Units of roundoff of float32 by which all is moved: by 1.2e-4, where a right forward may be 1e-6 off. Of 36 windows
of a pool that were within 4e-6 of a tie one direction missed 2, four none."""
FEW_ROUNDINGS = 4.0
"""Of operands that may be rounded further, by which all is moved. By less than one of TF32's one of 61,440 sums was
missed whose gradient turned over (a sum of 676,512 products is as far off as each of its weights), by two one of 60
maxima."""
BENT = 0.1
"""A kink moves an output further to one side than to the other, by this part of both at least. Smooth outputs, REACH
roundoffs of their curvature: 1e-4."""
ROUNDED = 1e-3
"""Of REACH roundoffs of the output itself: bends of less than this are float64's own rounding."""
CURVED = 8.0
"""Times what is smooth may bend by, of its largest step and by reach: where a step happens to be small its bend is not.
Without it 1 to 2 % of smooth outputs were taken for kinks by TF32's reach."""
MOST = 0.01
"""Of an output's elements, in float32. Where there would be more they are no exceptions, and the output is left as it
is."""
SPARED, SHARE = 4, 8
"""So many are exceptions in small outputs, too (of 64 one is more than MOST), but no more than one of eight."""
CROSSED = 100
"""Kinks within reach, from which on the noise has them, where operands may be rounded further: roundings cross part of
those, and of 10 and more no probe is far from the mean. Of the 1,024 maxima of rows of KernelBench's task 98 they cross
one or two, some probes none: right gradients were convicted under two seeds of two (H200)."""


def reach_of(operand_bits: int) -> float:
    """How near a kink is, as a part of all that is moved, where operands may be rounded to so many bits of mantissa."""
    return max(REACH * 2.0**-24, FEW_ROUNDINGS * 2.0 ** -(operand_bits + 1) if operand_bits < 23 else 0.0)


def are_exceptions(elements: int, operand_bits: int) -> bool:
    """Whether kinks may be few in an output of so many elements. TF32's roundings carry one element of 300 to 10,000
    over one, so that in large outputs they need not be sought, which is nine evaluations."""
    return operand_bits >= 23 or elements * 2.0**-operand_bits <= CROSSED


def kinks(
    reference: Reference,
    state: dict[str, torch.Tensor],
    parts: Iterable[Any],
    reach: float,
    seed: int,
    draws: int | None,
) -> list[torch.Tensor]:
    """Whether each element of each floating output is near a kink, flat and on the CPU: found by moving all floating
    inputs and weights forth and back by that part of each, in float64. `parts` are consecutive parts of the batch,
    `draws` the seed of what a forward draws at random."""
    masks = [_of_part(reference, state, inputs, reach, seed, draws) for inputs in parts]
    return [torch.cat(of_output) for of_output in zip(*masks, strict=True)]


def positions(masks: Sequence[torch.Tensor], operand_bits: int) -> torch.Tensor:
    """Where any of an output's masks is set; nowhere, if one is set more often than exceptions are."""
    if any(mask.sum() > most_spared(len(mask), operand_bits) for mask in masks):
        return torch.empty(0, dtype=torch.int64)
    return torch.stack([*masks]).any(0).nonzero().flatten()


def most_spared(elements: int, operand_bits: int) -> float:
    """How many kinks are exceptions in an output of so many elements."""
    small = elements // SHARE
    return max(MOST * elements, min(SPARED, small)) if operand_bits >= 23 else min(CROSSED, small)


def _of_part(
    reference: Reference, state: dict[str, torch.Tensor], inputs: Any, reach: float, seed: int, draws: int | None
) -> list[torch.Tensor]:
    # Brought there once, since all is moved nine times: of 2^30 weights each copy from the CPU takes seconds.
    structure, leaves = take_apart(inputs, "input")
    state = {name: value.to(reference.device) for name, value in state.items()}
    inputs = put_together(structure, [leaf.tensor.to(reference.device) for leaf in leaves])

    def outputs(by: float, direction: int) -> list[torch.Tensor]:
        moved = _moved(state, inputs, by, seed + direction, reference.device)
        leaves = reference.evaluate(*moved, dtype=torch.float64, seed=draws).outputs
        return [leaf.tensor for leaf in leaves if leaf.tensor.is_floating_point()]

    return [mask.flatten().cpu() for mask in near_kinks(outputs, reach)]


def near_kinks(outputs: Callable[[float, int], list[torch.Tensor]], reach: float) -> list[torch.Tensor]:
    """Whether each element is near a kink, of the outputs of what is moved by so much in a direction of that number."""
    middle = outputs(0.0, 0)
    steps, bends = ([torch.zeros_like(each) for each in middle] for _ in range(2))  # the largest of all directions
    for direction in range(DIRECTIONS):
        above, below = (outputs(sign * reach, direction) for sign in (1, -1))
        for furthest, most_bent, value, up, down in zip(steps, bends, middle, above, below, strict=True):
            step, bend = (up - down).abs(), (up + down - 2 * value).abs()
            torch.maximum(furthest, step, out=furthest)
            torch.maximum(most_bent, bend * (bend > BENT * step), out=most_bent)
    return [
        most_bent > reach * torch.maximum(ROUNDED * value.abs(), CURVED * furthest)
        for furthest, most_bent, value in zip(steps, bends, middle, strict=True)
    ]


def _moved(
    state: dict[str, torch.Tensor], inputs: Any, reach: float, seed: int, device: torch.device
) -> tuple[dict[str, torch.Tensor], Any]:
    """Each element by up to `reach` of itself, those of one seed in one direction."""
    generator = torch.Generator(device).manual_seed(seed)

    def move(value: torch.Tensor) -> torch.Tensor:
        return perturbed(value, reach, generator, dtype=torch.float64)

    structure, leaves = take_apart(inputs, "input")
    moved = {name: move(value) for name, value in state.items()}
    return moved, put_together(structure, [move(leaf.tensor) for leaf in leaves])
