"""Inputs in shared memory: a box of positions with its halo, channels in units of 16 bytes.

    halo[unit of channels][position][word of 4 bytes]

A tap is a constant distance in positions, and the eight positions of a tensor-core tile are 128 bytes in a row, so no
tap has bank conflicts. Where the last dim is read with a stride, every stride-th position lies in a row, and behind
them those from the second on, and so forth: outputs that are neighbours read neighbours there too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.program import contiguous
from crucible.schedule import cost
from crucible.schedule.convolution.estimate import lines
from crucible.schedule.machine import H200, Machine

THREADS = 256
DIMS = ("d", "h", "w")
UNITS = {"float32": 4, "float16": 8, "bfloat16": 8}
"""Channels of a unit."""
IN_FLIGHT = 16
"""Loads of a thread that are on their way at once where it has as many to do."""
HELD = 16
"""Elements that a thread reads before it stores any, where it reads them to spread them."""
STEP_UNITS = 2
"""Units that one tensor-core instruction takes."""


@dataclass(frozen=True)
class Boxes:
    """A correlation cut into boxes of positions, one a block."""

    of: Correlation
    unit: int
    """Channels of a unit."""
    staged: int
    """Tensor-core steps whose input channels are in shared memory at once."""
    box: tuple[int, ...]
    """Positions q of a block along each dim."""
    machine: Machine = field(default=H200, kw_only=True, compare=False, repr=False)
    """By whose costs it is estimated."""

    @cached_property
    def halo(self) -> tuple[int, ...]:
        """Positions of the input along each dim."""
        axes = zip(self.box, self.of.axes, strict=True)
        return tuple((n - 1) * axis.in_stride + len(axis.shifts) for n, axis in axes)

    @property
    def lane_stride(self) -> int:
        """Of the last dim: into so many rows each row of positions is dealt."""
        return self.of.axes[-1].in_stride

    @property
    def lane_row(self) -> int:
        """Positions of one of them."""
        return -(-self.halo[-1] // self.lane_stride)

    @property
    def stored(self) -> tuple[int, ...]:
        """Places for the halo along each dim."""
        return (*self.halo[:-1], self.lane_stride * self.lane_row)

    @property
    def steps_of_outputs(self) -> tuple[int, ...]:
        """Places from what one output reads to what the next does, along each dim."""
        strides = contiguous(self.stored)
        return (*(s * axis.in_stride for s, axis in zip(strides[:-1], self.of.axes, strict=False)), 1)

    @property
    def points(self) -> int:
        """From one unit of channels to the next in the halo."""
        return math.prod(self.stored)

    @property
    def steps(self) -> int:
        """Tensor-core steps over all input channels of a group."""
        return -(-self.of.in_channels // (self.unit * STEP_UNITS))

    @property
    def halo_words(self) -> int:
        return self.staged * STEP_UNITS * self.points * 4

    @property
    def boxes(self) -> tuple[int, ...]:
        """Along each dim."""
        return tuple(-(-axis.steps // n) for axis, n in zip(self.of.axes, self.box, strict=True))

    @property
    def items(self) -> int:
        """Boxes of the whole batch."""
        return self.of.batch * math.prod(self.boxes)

    def windows(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Windows that lie in the halo at most, or partly, along each dim."""
        return tuple((n + size - 2) // size + 1 for n, size in zip(self.halo, sizes, strict=True))

    def loaded(self, units: int, ahead: bool) -> float:
        """Wavefronts for so many units of the halo: loaded and stored, or copied word by word (at most two lanes to a
        bank) and rounded in place."""
        each, width = lines(self.halo[-1], 16 // self.unit), self.unit
        passes = width * max(each, 2) + 8 if ahead else width * each + 4
        return units * math.prod(self.halo) / 32 * passes

    @property
    def _loads(self) -> int:
        """Of a thread for a position."""
        return self.unit * STEP_UNITS * self.staged

    @property
    def in_flight(self) -> int:
        """Loads that a thread has on their way at once, if it has so many to do."""
        return IN_FLIGHT

    @property
    def positions_together(self) -> int:
        """That a thread loads before it stores any, so that enough loads are on their way at once."""
        return max(1, min(self.in_flight // self._loads, -(-math.prod(self.halo) // THREADS)))

    @property
    def load_rounds(self) -> int:
        """In which threads load what is staged at once, `IN_FLIGHT` loads each."""
        return -(-(-(-math.prod(self.halo) // THREADS) * self._loads) // IN_FLIGHT)

    def spread_passes(self, sizes: Sequence[int], units: int) -> float:
        """Wavefronts for so many units of channels that are spread over windows: values and choices, then 16 bytes an
        element, with a few conflicts where rows of windows end."""
        windows = self.windows(sizes)
        loads = self.unit * (lines(windows[-1], 16 // self.unit) + lines(windows[-1], 1))
        return units * math.prod(windows) / 32 * (loads + 5 * math.prod(sizes))

    def spread_clocks(self, sizes: Sequence[int], steps: int) -> float:
        """Estimate, without waiting for memory, of a multiprocessor's clocks for so many steps of channels that are
        spread over windows."""
        windows = steps * STEP_UNITS * math.prod(self.windows(sizes))
        return cost.spread_windows(self.machine, windows, math.prod(sizes))

    def spread_rounds(self, sizes: Sequence[int]) -> int:
        """In which threads read what is staged at once and spread over windows; none where they hold it beside the
        multiplication before."""
        rounds = -(-math.prod(self.windows(sizes)) * self.staged * STEP_UNITS // THREADS)
        most = HELD // self.unit
        return 0 if rounds <= most else -(-rounds // most)

    def shift_words(self, shift: Sequence[int]) -> int:
        """How far a tap is from the first position of the halo that any tap reads."""
        *outer, last = (given - axis.shifts[0] for given, axis in zip(shift, self.of.axes, strict=True))
        row, place = last % self.lane_stride, last // self.lane_stride
        at = row * self.lane_row + place
        return 4 * (at + sum(n * s for n, s in zip(outer, contiguous(self.stored)[:-1], strict=True)))
