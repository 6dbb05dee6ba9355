"""Where a lane's packs of neighbouring outputs are, in a plane of outputs of several phases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Either, Index, Number, Smaller
from crucible.kernel.places import ITEM_BYTES
from crucible.kinds.convolution.phases.frame import PhaseFrame
from crucible.kinds.convolution.vectors import Laid
from crucible.schedule.convolution.warpgroup.walks import ROWS

WORD = 16
"""Bytes that a lane stores at once."""


@dataclass(frozen=True)
class Pack:
    """Neighbouring outputs."""

    number: tuple[Index, Index, Index]
    """Which channel, which eight of positions, which of the outputs of two positions."""
    row_in: Index
    """The row of positions, from the first of the box."""
    at: Index
    """In the row, among outputs."""


class Packs:
    """All of a lane, of tensors that are read or written for each output."""

    def __init__(self, frame: PhaseFrame, k: Builder, lane: Index, tensors: Sequence[Laid]) -> None:
        self.frame, self.k, self.walks, self.lane, self.tensors = frame, k, frame.walks, lane, tensors
        self.vector = self._vector()
        self.count = 2 * self.walks.last_phases // self.vector
        """Of a pair of positions."""

    def _vector(self) -> int:
        """Neighbouring outputs of a lane that are all inside or none, and loaded or stored at once: as many as divide
        every row, and every distance between rows in all that is read or written."""
        walks, phases = self.walks, self.walks.last_phases
        cut = [walks.box[-1] * phases] if walks.boxes[-1] > 1 else []
        sizes = [2 * phases, walks.of.axes[-1].outputs, *cut]
        for each in self.tensors:
            *outer, last = (stride.value for stride in each.strides)
            if last not in (0, 1):
                return 1
            sizes += [WORD // ITEM_BYTES[each.tensor.dtype], *outer] if last else []
        return math.gcd(*sizes)

    def product(self, place: Pack, n: Index) -> tuple[Index, Index]:
        """Of a pack's number n, where it is among the sums."""
        (i, j, e), phases = place.number, self.walks.last_phases
        number = e * self.vector + n
        return number % phases, j * 4 + i * 2 + number // phases

    def over(self, i: Index, channel: Index, corner: Sequence[Index], make: Callable[[Pack, Condition], None]) -> None:
        """Of one of a lane's channels, where the plane's outputs begin at a corner."""
        k, walks = self.k, self.walks
        pitch, width = walks.row_pitch, walks.box[-1]
        with k.unrolled("j", Number(walks.columns_of_b // 8)) as j:
            between = pitch % 8 == 0 and width <= pitch - 8  # eights that are none of outputs
            with k.when((Compare("<", j % (pitch // 8) * 8, Number(width)),) if between else (), is_rest=True):
                row_in, w_in = self._place(j)
                of_row = k.test("of_row", self._row_inside(row_in, channel, corner))
                with k.unrolled("e", Number(self.count)) as e:
                    at = k.named("at", w_in * walks.last_phases + e * self.vector)
                    inside = k.test("inside", (*of_row, Compare("<", at, self._end(corner))))
                    make(Pack((i, j, e), row_in, at), inside)

    def _place(self, j: Index) -> tuple[Index, Index]:
        """Of an eight's pair of positions: the row and the place in it."""
        k, pitch = self.k, self.walks.row_pitch
        if pitch % 8 == 0:
            tiles = pitch // 8
            row_in = k.named("row_in", j // tiles) if len(self.walks.box) > 1 else ZERO
            return row_in, k.let("w_in", j % tiles * 8 + self.lane % 4 * 2, "int")
        # Eight positions may begin in the row before. So divided, both are constants but for the lane's part.
        column = k.let("column", j * 8 % pitch + self.lane % 4 * 2, "int")
        beyond = k.test("beyond", (Compare(">=", column, Number(pitch)),))
        row_in = k.let("row_in", j * 8 // pitch + Either(beyond, ONE, ZERO), "int")
        return row_in, k.let("w_in", column - Either(beyond, Number(pitch), ZERO), "int")

    def _row_inside(self, row_in: Index, channel: Index, corner: Sequence[Index]) -> Condition:
        """Of a pair of positions, but for where in the row: whether they are outputs."""
        walks, of, tests = self.walks, self.walks.of, list[Compare]()
        rows = walks.box[-2] if len(walks.box) > 1 else 1
        if walks.columns_of_b > rows * walks.row_pitch:
            tests.append(Compare("<", row_in, Number(rows)))
        for dim, (at, axis) in enumerate(zip(corner[:-1], of.axes, strict=False)):
            if walks.boxes[dim] * walks.box[dim] * axis.out_stride > axis.outputs:
                at = at + row_in * axis.out_stride if dim == len(walks.box) - 2 else at
                tests.append(Compare("<", at, Number(axis.outputs)))
        if of.out_channels % ROWS and self.tensors:
            tests.append(Compare("<", channel, Number(of.out_channels)))
        return tuple(tests)

    def _end(self, corner: Sequence[Index]) -> Index:
        """Of a row's outputs in the box."""
        walks, outputs = self.walks, Number(self.walks.of.axes[-1].outputs)
        if walks.boxes[-1] == 1:
            return outputs
        return Smaller(Number(walks.box[-1] * walks.last_phases), outputs - corner[-1])
