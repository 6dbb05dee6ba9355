"""Warpgroups that stage planes of input, in turn: a thread loads its positions, waits for the stage, stores them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Place
from crucible.kernel.places import ITEM_BYTES
from crucible.kernel.warp_nodes import HELD
from crucible.kinds.convolution.split import split_words
from crucible.kinds.convolution.staged import Staged
from crucible.kinds.convolution.walks.frame import UNIT, Frame, Item
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.walks import MOST_UNITS, THREADS

Read: TypeAlias = Callable[[Index, Index], tuple[ir.Global, Condition]]
"""Of a position: where the channel of a number in a unit is, and whether it is inside."""


class Producing:
    """Their body while it is made."""

    lanes = THREADS
    """Threads that positions are dealt among."""

    def __init__(self, frame: Frame, k: Builder) -> None:
        self.frame, self.k, self.walks = frame, k, frame.walks
        self.thread = self._thread()
        self.staged = math.prod(self.walks.staged_plane)
        self.units, most = self._units()
        rounds = -(-self.staged // self.lanes)
        self.together = max(1, min(rounds, most))
        """Positions of a thread that are on their way at once."""
        self.is_all = self.together == rounds

    def _thread(self) -> Index:
        """Which of them this is."""
        thread = Place("thread", self.walks.threads) - self.walks.groups * THREADS
        return self.k.let("thread", thread % THREADS if self.walks.stagers > 1 else thread, "int")

    def _units(self) -> tuple[Number, int]:
        """Units of channels of a thread, and the positions for which it has room at once."""
        units = self.walks.steps * STEP_UNITS
        return Number(units), MOST_UNITS // units

    @property
    def kept(self) -> str:
        """What is on its way: of half types words of two. nvcc 13.0 keeps halves that are 0 outside of the tensor each
        in a register of its own, which spilled 108 bytes where 32 channels of three positions were on their way (the
        module took 1.13 times as long as before; not timed since)."""
        return HELD[self.frame.conv.math]

    def produce(self) -> None:
        k, frame, walks = self.k, self.frame, self.walks
        with frame.items(k) as item:
            batch = item.image * frame.source.strides[0]
            origin = ir.Pointer("origin", frame.source.tensor, batch)
            k.add(ir.Declare(origin))
            self._planes(item, origin, item.planes + (walks.span - 1))

    def _planes(self, item: Item, origin: ir.Pointer, count: Index) -> None:
        """Of an item."""
        with self.k.loop("t", ZERO, count, type="int") as t:
            self._fill(item, t, origin)

    def _fill(self, item: Item, t: Index, origin: ir.Pointer) -> None:
        """A stage."""
        k = self.k
        with k.fill(self.frame.ring):
            if self.is_all:
                self._stage(item, t, origin, self.thread)
            else:
                step = Number(self.together * self.lanes)
                with k.loop("first", self.thread, Number(self.staged), step, "int") as first:
                    self._stage(item, t, origin, first)

    def _stage(self, item: Item, t: Index, origin: ir.Pointer, first: Index) -> None:
        """A thread's positions of a plane."""
        k, frame = self.k, self.frame
        shape = (Number(self.together), self.units, Number(UNIT // ITEM_BYTES[self.kept]))
        words = ir.Fragment("words", self.kept, shape, True)
        k.add(ir.Declare((words,)))
        with k.unrolled("k", Number(self.together)) as round_:
            p = k.let("p", first + round_ * self.lanes, "int")
            self._load(item, t, origin, p, words, round_)
        k.add(ir.Vacant(frame.ring))
        with k.unrolled("k", Number(self.together)) as round_:
            p = p if self.together == 1 else k.let("p", first + round_ * self.lanes, "int")
            with k.when(self._is_there(p)), k.unrolled("u", self.units) as u:
                self._store(ir.Element(words, (round_, u)), u, p)

    def _is_there(self, p: Index) -> Condition:
        return self.frame.below(p, self.staged, self.lanes * self.together)

    def _load(
        self, item: Item, t: Index, origin: ir.Pointer, p: Index, words: ir.Fragment, round_: Index
    ) -> None:  # fmt: skip
        """All channels of a position; 0 where it is outside of the tensor."""
        k = self.k
        read = self._reads(item, self._plane(item, t), origin, p)
        with k.unrolled("u", self.units) as u:
            word = ir.Fragment("word", words.dtype, words.shape[-1:], True)
            k.add(ir.Declare((word,)))
            self._unit(word, lambda number: read(u, number))
            k.add(ir.Convert(ir.Element(words, (round_, u)), ir.Element(word)))

    def _unit(self, word: ir.Fragment, read: Callable[[Index], tuple[ir.Global, Condition]]) -> None:
        """Channels of a unit, as they are kept."""
        if self.kept != "halves":
            for number in map(Number, range(word.elements)):
                self.k.add(ir.Load(ir.Element(word, (number,)), *read(number)))
            return
        staged = Staged(self.k, self.frame.conv.source.dtype, self.frame.conv.math, None)
        with self.k.unrolled("i", word.shape[-1]) as i:
            staged.word(ir.Element(word, (i,)), [read(i * 2), read(i * 2 + 1)])

    def _plane(self, item: Item, t: Index) -> Index:
        """Of the tensor, where one is walked along."""
        return self._along(0, item.starts[0] + t) if len(self.walks.box) == 3 else ZERO

    def _reads(self, item: Item, plane: Index, origin: ir.Pointer, p: Index) -> Read:
        k, frame, in_channels = self.k, self.frame, self.walks.of.in_channels
        terms, tests = self._place(item, plane, p)
        inside = k.test("inside", (*self._is_there(p), *tests))
        source = ir.Pointer("from", origin, total(terms))
        k.add(ir.Declare(source))

        def read(u: Index, number: Index) -> tuple[ir.Global, Condition]:
            channel = u * frame.unit + number
            guard = (*inside, *frame.below(channel, in_channels, self.walks.unit * STEP_UNITS))
            return ir.Global(source, channel * frame.source.strides[1]), guard

        return read

    def _place(self, item: Item, plane: Index, p: Index) -> tuple[list[Index], list[Compare]]:
        """What a position adds to the place of an image, and the tests that it is inside of it."""
        walks, rank = self.walks, len(self.walks.box)
        within = decoded(p, walks.staged_plane) if rank > 1 else [p]
        terms, tests = list[Index](), list[Compare]()
        for dim, axis in enumerate(walks.of.axes):
            at = plane if rank == 3 and dim == 0 else self._along(dim, item.starts[dim] + within[dim - rank])
            if axis.shifts[0] < 0 or walks.boxes[dim] * walks.box[dim] - 1 + axis.shifts[-1] >= axis.extent:
                tests += self._inside(at, axis.extent)
            terms.append(at * self.frame.source.strides[2 + dim])
        return terms, tests

    def _inside(self, at: Index, extent: int) -> Condition:
        """Both tests, where one would do: nvcc 13.0 makes one comparison of them, and other code of one."""
        return Compare(">=", at, ZERO), Compare("<", at, Number(extent))

    def _along(self, dim: int, position: Index) -> Index:
        """Where in the tensor the first tap of a position is."""
        first = self.walks.of.axes[dim].shifts[0]
        first += self.walks.first_column if dim == len(self.walks.box) - 1 else 0
        return self.k.let(self.frame.dims[dim], position - -first if first < 0 else position + first, "int")

    def _store(self, unit: ir.Element, u: Index, p: Index) -> None:
        k, planes, at = self.k, self.frame.planes, self._at(p)
        if not self.walks.exact:
            k.add(ir.Store(unit, ir.InShared(planes, (ZERO, u, at, ZERO))))
            return
        for word, split in enumerate(split_words(unit)):
            k.add(split, ir.Store(split.into, ir.InShared(planes, (Number(word), u, at, ZERO))))

    def _at(self, p: Index) -> Index:
        """A position in its stage."""
        walks, columns = self.walks, self.walks.staged_plane[1]
        if (walks.first_column, walks.row_pitch) == (0, columns):
            return p
        return p // columns * walks.row_pitch + p % columns + walks.first_column
