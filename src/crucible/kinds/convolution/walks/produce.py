"""Warpgroups that stage planes of input, in turn: a thread loads its positions, waits for the stage, stores them."""

from __future__ import annotations

import math
from typing import Literal

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Index, Number, Place
from crucible.kinds.convolution.walks.frame import Frame, Item
from crucible.kinds.indices import decoded, total
from crucible.write.convolution.halo import STEP_UNITS
from crucible.write.convolution.warpgroup.walks import MOST_UNITS, THREADS


class Producing:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder) -> None:
        self.frame, self.k, self.walks = frame, k, frame.walks
        consumers = self.walks.groups * THREADS
        thread = Place("thread", self.walks.threads) - consumers
        self.thread = k.let("thread", thread % THREADS if self.walks.stagers > 1 else thread, "int")
        self.staged = math.prod(self.walks.plane)
        self.units = Number(self.walks.steps * STEP_UNITS)
        rounds = -(-self.staged // THREADS)
        self.together = max(1, min(rounds, MOST_UNITS // self.units.value))
        """Positions of a thread that are on their way at once."""
        self.is_all = self.together == rounds

    def produce(self) -> None:
        k, frame, walks = self.k, self.frame, self.walks
        with frame.items(k) as item:
            batch = item.image * frame.source.strides[0]
            origin = ir.Pointer("origin", frame.source.tensor, batch)
            k.add(ir.Declare(origin))
            with k.loop("t", ZERO, item.planes + (walks.span - 1), type="int") as t, k.fill(frame.ring):
                if self.is_all:
                    self._stage(item, t, origin, self.thread)
                else:
                    step = Number(self.together * THREADS)
                    with k.loop("first", self.thread, Number(self.staged), step, "int") as first:
                        self._stage(item, t, origin, first)

    def _stage(self, item: Item, t: Index, origin: ir.Pointer, first: Index) -> None:
        """A thread's positions of a plane."""
        k, frame = self.k, self.frame
        dtype = "word" if self.walks.exact else frame.dtype
        shape = (Number(self.together), self.units, Number(frame.unit))
        words = ir.Fragment("words", dtype, shape, True)
        k.add(ir.Declare((words,)))
        with k.unrolled("k", Number(self.together)) as round_:
            p = k.let("p", first + round_ * THREADS, "int")
            self._load(item, t, origin, p, words, round_)
        k.add(ir.Vacant(frame.ring))
        with k.unrolled("k", Number(self.together)) as round_:
            p = p if self.together == 1 else k.let("p", first + round_ * THREADS, "int")
            with k.when(self._is_there(p)), k.unrolled("u", self.units) as u:
                self._store(ir.Element(words, (round_, u)), u, p)

    def _is_there(self, p: Index) -> Condition:
        return self.frame.below(p, self.staged, THREADS)

    def _load(
        self, item: Item, t: Index, origin: ir.Pointer, p: Index, words: ir.Fragment, round_: Index
    ) -> None:  # fmt: skip
        """All channels of a position; 0 where it is outside of the tensor."""
        k, frame, in_channels = self.k, self.frame, self.walks.of.in_channels
        terms, tests = self._place(item, t, p)
        inside = k.test("inside", (*self._is_there(p), *tests))
        source = ir.Pointer("from", origin, total(terms))
        k.add(ir.Declare(source))
        with k.unrolled("u", self.units) as u:
            word = ir.Fragment("word", words.dtype, (Number(frame.unit),), True)
            k.add(ir.Declare((word,)))
            for number in map(Number, range(frame.unit)):
                channel = u * frame.unit + number
                guard = (*inside, *frame.below(channel, in_channels, self.walks.unit * STEP_UNITS))
                place = ir.Global(source, channel * frame.source.strides[1])
                k.add(ir.Load(ir.Element(word, (number,)), place, guard))
            k.add(ir.Convert(ir.Element(words, (round_, u)), ir.Element(word)))

    def _place(self, item: Item, t: Index, p: Index) -> tuple[list[Index], list[Compare]]:
        """What a position adds to the place of an image, and the tests that it is inside of it."""
        k, walks, dims, rank = self.k, self.walks, self.frame.dims, len(self.walks.box)
        within = decoded(p, walks.plane) if rank > 1 else [p]
        terms, tests = list[Index](), list[Compare]()
        for dim, axis in enumerate(walks.of.axes):
            walked = rank == 3 and dim == 0
            first = axis.shifts[0]
            index = item.starts[dim] + (t if walked else within[dim - rank])
            at = k.let(dims[dim], index - -first if first < 0 else index + first, "int")
            if first < 0 or walks.boxes[dim] * walks.box[dim] - 1 + axis.shifts[-1] >= axis.extent:
                # both, where one would do: nvcc 13.0 makes one comparison of them, and other code of one
                tests += [Compare(">=", at, ZERO), Compare("<", at, Number(axis.extent))]
            terms.append(at * self.frame.source.strides[2 + dim])
        return terms, tests

    def _store(self, unit: ir.Element, u: Index, p: Index) -> None:
        k, planes = self.k, self.frame.planes
        if not self.walks.exact:
            k.add(ir.Store(unit, ir.InShared(planes, (ZERO, u, p, ZERO))))
            return
        parts: tuple[tuple[Literal["high", "low"], Index], ...] = (("high", ZERO), ("low", ONE))
        for part, word in parts:
            into = ir.Element(ir.Fragment(part, "tf32", (Number(self.frame.unit),), True))
            k.add(ir.Split(into, unit, part, declares=True))
            k.add(ir.Store(into, ir.InShared(planes, (word, u, p, ZERO))))
