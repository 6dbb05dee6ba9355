"""A weight in the order in which tensor cores take it, by the kernel that multiplies by it.

A thread takes one tap of every so many channels, so that loads are of neighbours and where they go is computed once.
The first loads begin before anything else does.
"""

from __future__ import annotations

import math

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Place, Table
from crucible.kinds.convolution.pooled.frame import PooledFrame
from crucible.kinds.convolution.pooled.turning import Turning
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.pooled import ENTRY
from crucible.schedule.convolution.warpgroup.walks import ROWS, THREADS

MOST_TOGETHER = 64
"""Elements of the weight that a thread loads at once: there are no sums yet."""


class Ordering:
    """It while it is made: `ask` stands before shared memory is prepared, `store` is of warpgroups that multiply."""

    def __init__(self, frame: PooledFrame, k: Builder, turning: Turning) -> None:
        self.frame, self.k, self.walks, self.turning = frame, k, frame.walks, turning
        self.taps = math.prod(axis.kernel for axis in self.walks.of.axes)
        most = min(self.walks.channels, self.walks.groups * THREADS // self.taps)
        self.apart = 1 << most.bit_length() - 1
        """From one channel of a thread to its next: a power of two, as the channels of a tile are."""
        self.made = self.walks.channels // self.apart
        """Channels of a thread."""
        self.pieces = self.made * self.walks.steps * STEP_UNITS
        """Units of input channels, of each of its channels, that a thread orders."""
        rounds = -(-self.pieces // max(1, MOST_TOGETHER // self.walks.unit))
        self.together = -(-self.pieces // rounds)
        shape = (Number(self.together), Number(self.walks.unit))
        self.values = ir.Fragment("values", frame.conv.source.dtype, shape)
        self.orders = (Compare("<", Place("thread", self.walks.threads), Number(self.apart * self.taps)),)
        """Whether a thread does."""

    def ask(self) -> None:
        k, thread = self.k, Place("thread", self.walks.threads)
        k.add(ir.Note("The thread's tap and first channel of the weight, which it puts in order."))
        self.tap, self.own = k.let("tap", thread % self.taps, "int"), k.let("made", thread // self.taps, "int")
        k.add(ir.Declare((self.values,)))
        with k.when(self.orders):
            self._load(ZERO)
        self.turning.ask(self.made, lambda m: self._channel(m))

    def clear(self) -> None:
        """What is no tap's is 0."""
        if not self.walks.has_gaps:
            return
        k, none = self.k, ir.Fragment("none", ir.HELD[self.frame.conv.math], (Number(4),), True)
        k.add(ir.Declare((none,), "sum"))
        threads = Number(self.walks.threads)
        with k.loop("p", Place("thread", self.walks.threads), Number(self.walks.weight_units), threads, "int") as p:
            k.add(ir.Store(ir.Element(none), ir.InShared(self.frame.weights, (p, ZERO))))

    def store(self) -> None:
        k = self.k
        k.add(ir.Note("The weight in the order in which tensor cores take it."))
        with k.when(self.orders):
            self._place()
            self.turning.of_channels(self.made)
            self._store(ZERO)
            if self.together < self.pieces:
                step = Number(self.together)
                with k.loop("begin", step, Number(self.pieces), step, "int") as begin:
                    self._load(begin)
                    self._store(begin)
        k.add(ir.Provide(self.frame.ring, (self.frame.weights,)))

    def _place(self) -> None:
        """Where those of the thread's tap begin."""
        k, walks, kernel = self.k, self.walks, self.walks.of.axes[-1].kernel
        last_taps = Table(
            "last_taps", tuple(entry << 1 | half for entry, half in walks.last_taps), "the matrix, and its half", True
        )
        k.add(ir.Declare(last_taps))
        last = k.let("last", last_taps[self.tap % kernel], "int")
        entry = self.tap // kernel * walks.entries_a_tap + last // 2
        row = self._row(self.own) if self._rows_apart else ZERO
        self.of_tap = ir.Pointer("of_tap", self.frame.weights, entry * ENTRY + last % 2 * 8 + row, True)
        k.add(ir.Declare(self.of_tap))

    @property
    def _rows_apart(self) -> bool:
        """Whether the rows of a thread's channels are all equally far apart."""
        return not self.walks.pairs or self.apart % 8 == 0

    def _row(self, channel: Index) -> Index:
        """Of a matrix of weights: of two phases, each eight channels are followed by their others."""
        return channel // 8 * 16 + channel % 8 if self.walks.pairs else channel

    def _channel(self, m: Index) -> Index:
        return self.frame.first_channel + m * self.apart + self.own

    def _piece(self, begin: Index, number: Index) -> tuple[Index, Index, Condition]:
        """The unit of input channels, which of the thread's channels, and whether there is one."""
        piece = number if begin is ZERO else self.k.let("piece", begin + number, "int")
        ragged = begin is not ZERO and self.pieces % self.together
        there = (Compare("<", piece, Number(self.pieces)),) if ragged else ()
        return self.k.named("u", piece // self.made), self.k.named("m", piece % self.made), there

    def _load(self, begin: Index) -> None:
        """Of input channels and channels that are not there: 0."""
        k, walks, frame = self.k, self.walks, self.frame
        _, of_made, of_read = frame.weight_strides
        with k.unrolled("k", Number(self.together)) as number:
            u, m, there = self._piece(begin, number)
            with k.unrolled("j", Number(walks.unit)) as j:
                channel, read = self._channel(m), u * walks.unit + j
                guard = (
                    *there,
                    *frame.below(channel, walks.of.out_channels, walks.channels),
                    *frame.below(read, walks.of.in_channels, walks.unit * STEP_UNITS),
                )
                at = read * of_read + channel * of_made + self.tap
                k.add(ir.Load(ir.Element(self.values, (number, j)), ir.Global(frame.packed, at), guard))

    def _store(self, begin: Index) -> None:
        """A unit of 16 bytes at once, to where tensor cores take it from."""
        k, walks = self.k, self.walks
        with k.unrolled("k", Number(self.together)) as number:
            u, m, there = self._piece(begin, number)
            with k.when(there):
                word = self.frame.word(k, self.values, (number,), self.turning.of_weight(m))
                own = m * (self.apart * (2 if walks.pairs else 1))
                row = own if self._rows_apart else self._row(m * self.apart + self.own)
                at = u // STEP_UNITS * (walks.entries * ENTRY) + u % STEP_UNITS * ROWS + row
                k.add(ir.Store(word, ir.InShared(self.of_tap, (at, ZERO))))
