"""Gradients of strided convolutions' weights by fewer taps, of the output's gradient several times.

Where a position reads in[q * s + shift], and shift is e * s + k with 0 <= k < s, that is what position q + e reads with
shift k:

    grad_weight[o, i, tap] = sum over n and q of grad[n, o, q - e] * in[n, i, q * s + k]

The gradient moved on by each e becomes rows of its own beside the others: an instruction has 64 of them, which 32
channels leave half idle. A kernel of 3 at stride 2 has two k in the stead of three shifts, so that two thirds of the
instructions are left along a dim, and nothing of the input is read by two positions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from crucible.algebra.convolution.correlation import Axis, Correlation, Tap
from crucible.algebra.program import contiguous
from crucible.schedule.convolution.warpgroup.walks import ROWS

WARP_ROWS = 16
"""Of an instruction, that one warp holds: they are moved alike."""


@dataclass(frozen=True)
class Moves:
    """By how many positions rows are on."""

    of: Correlation
    """The one whose weight it is."""
    along: tuple[range, ...]
    """Each dim; the last dim's rows are not moved."""

    @property
    def count(self) -> int:
        return math.prod(map(len, self.along))

    @cached_property
    def places(self) -> tuple[int, ...]:
        """How many there are along planes, rows and columns."""
        return (*[1] * (3 - len(self.along)), *map(len, self.along))

    def offset(self, move: int, numbers: tuple[int, ...]) -> int:
        """Of the weight's tap that rows of a move have with the taps of such numbers along all dims: elements from the
        weight's first tap; -1 where there is none."""
        axes = self.of.axes
        strides = contiguous([axis.kernel for axis in axes])
        steps = list(itertools.product(*self.along))[move]
        total = 0
        for dim, (axis, number) in enumerate(zip(axes, numbers[-len(axes) :], strict=True)):
            if len(self.along[dim]) > 1:  # the number is that of the shift
                shift = number - steps[dim] * axis.in_stride
                number = next((tap.number for tap in axis.phases[0] if tap.shift == shift), -1)
            if number < 0:
                return -1
            total += number * strides[dim]
        return total


def moved(of: Correlation) -> Iterator[tuple[Correlation, Moves]]:
    """The correlations of fewer taps, whose output channels are those of each move: along planes, rows or both. None
    where no warp's rows would be moved alike, or where all would not be rows of one instruction."""
    if of.out_channels % WARP_ROWS or not of.is_dense or math.prod(of.phases) > 1:
        return
    ways = [[(axis, range(1)), *_moved(axis)] for axis in of.axes[:-1]]
    for each in itertools.product(*ways, [(of.axes[-1], range(1))]):
        axes, along = zip(*each, strict=True)
        moves = Moves(of, along)
        if 1 < moves.count <= ROWS // of.out_channels:
            yield replace(of, out_channels=of.out_channels * moves.count, axes=axes), moves


def _moved(axis: Axis) -> list[tuple[Axis, range]]:
    """A dim with the k for taps (each its own number), and how far on the gradient is for them."""
    parts = [divmod(tap.shift, axis.in_stride) for tap in axis.phases[0]]
    steps, shifts = {e for e, _ in parts}, {k for _, k in parts}
    if len(steps) == 1 or len(shifts) == 1:
        return []
    outputs = min(axis.outputs + max(steps), (axis.extent - 1) // axis.in_stride + 1)
    phase = tuple(Tap(k, k) for k in sorted(shifts))
    return [(replace(axis, outputs=outputs, phases=(phase,)), range(-max(steps), 1 - min(steps)))]
