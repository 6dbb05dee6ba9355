"""Gradients of windows in shared memory, as those of the windows' elements: what a pool's backward would write for
another kernel to read is made where that reads it.

A thread takes a window that lies in a region of elements, or partly, and writes those of its elements that do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.windows import Spread
from crucible.algebra.program import contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Place, Range
from crucible.kinds.convolution.halo import Source, there
from crucible.kinds.convolution.staged import WORDS, Item, Staged, flag, pack
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.halo import DIMS, HELD, STEP_UNITS, THREADS, Boxes


@dataclass(frozen=True)
class Side:
    """A region of the elements along one dim."""

    name: str
    start: Index
    """Its first element, which may lie before the tensor's."""
    first: int
    """The first of its starts; the others are beyond that by multiples of `step`."""
    step: int
    extent: int
    """Its elements."""
    elements: int
    """Of the whole tensor."""
    stride: int
    """Of the tensor of windows."""
    size: int
    """Of a window."""

    @property
    def outputs(self) -> int:
        """Windows of the tensor."""
        return self.elements // self.size

    @property
    def windows(self) -> int:
        """In the region, or partly."""
        before = self.first % self.size if self.step % self.size == 0 else self.size - 1
        return (before + self.extent - 1) // self.size + 1

    @property
    def first_window(self) -> Index:
        """The number of the window that the region begins in, rounded down."""
        far = max(0, -(self.first // self.size))
        return (self.start + far * self.size) // self.size - far


Sides = tuple[Side, ...]
Values = Callable[[Index, Index, Index, Condition], None]
"""Reads what a window of number u has in round r, so far from the tensor's first window, where it is there."""
Words = Callable[[Index], None]
"""Makes of what was read in round r what is kept of it."""
Stores = Callable[[Index, Index, Index, list[Index]], None]
"""Of a round and a number u what element e keeps, at its place in the region."""


@dataclass(frozen=True)
class Spreading:
    """Nodes that fill a region from a tensor of windows, at most so many `held` by a thread at once."""

    k: Builder
    spread: Spread
    sides: Callable[[Item], Sides]
    outer: int
    """How many of each window there are: channels, or units of them."""
    held: int
    values: Values
    words: Words
    stores: Stores
    some: Item
    """Any item: all have as many windows."""

    @cached_property
    def windows(self) -> tuple[int, ...]:
        return tuple(side.windows for side in self.sides(self.some))

    @property
    def count(self) -> int:
        """Of windows, each as often as there are."""
        return math.prod(self.windows) * self.outer

    @property
    def rounds(self) -> int:
        """In which a thread takes a window each, of at most `held` at once."""
        return min(self.held, -(-self.count // THREADS))

    def fill(self, item: Item) -> None:
        """What `load` reads is stored at once."""
        rounds, all_ = Number(self.rounds), -(-self.count // THREADS)
        if self.rounds == all_:
            self.load(item)
            self.store(item)
            return
        with self.k.loop("begin", ZERO, Number(all_), rounds, "int") as begin:
            self.load(item, begin)
            self.store(item, begin)

    def load(self, item: Item, begin: Index = ZERO) -> None:
        k, sides = self.k, self.sides(item)
        first = [k.named(f"first_{side.name}", side.first_window) for side in sides]
        with k.unrolled("r", Number(self.rounds)) as r:
            p = k.let("p", Place("thread", THREADS) + (begin + r) * THREADS, "int")
            u, windows = self._window(p, sides, first)
            tests = [Compare("<", p, Number(self.count))] if self._some_beyond else []
            tests += [Compare("in", at, Number(side.outputs)) for at, side in zip(windows, sides, strict=True)]
            inside = flag(k, "inside", tuple(tests))
            far = total([at * side.stride for at, side in zip(windows, sides, strict=True)])
            self.values(r, u, k.named("from", far), inside)

    def store(self, item: Item, begin: Index = ZERO) -> None:
        k = self.k
        with k.scope():
            sides = self.sides(item)
            first = [k.named(f"first_{side.name}", side.first_window) for side in sides]
            with k.unrolled("r", Number(self.rounds)) as r:
                p = k.let("p", Place("thread", THREADS) + (begin + r) * THREADS, "int")
                with k.when((Compare("<", p, Number(self.count)),) if self._some_beyond else (), is_rest=True):
                    u, windows = self._window(p, sides, first)
                    self.words(r)
                    with k.unrolled("e", Number(math.prod(self.spread.sizes))) as e:
                        self._element(sides, windows, r, u, e)

    @property
    def _some_beyond(self) -> bool:
        return self.count % (THREADS * self.rounds) != 0

    def _window(self, p: Index, sides: Sides, first: list[Index]) -> tuple[Index, list[Index]]:
        """Which one a thread takes."""
        k, (u, *windows) = self.k, decoded(p, (self.outer, *self.windows))
        u = k.named("u", u)
        return u, [k.named(side.name, one + at) for side, one, at in zip(sides, first, windows, strict=True)]

    def _element(self, sides: Sides, windows: list[Index], r: Index, u: Index, e: Index) -> None:
        k, places, tests = self.k, list[Index](), list[Compare]()
        for side, window, at in zip(sides, windows, decoded(e, self.spread.sizes), strict=True):
            places.append(k.named(f"to_{side.name}", window * side.size + at - side.start))
            tests.append(Compare("in", places[-1], Number(side.extent)))
        with k.when(tuple(tests)):
            self.stores(r, u, e, places)


def chosen(choice: ir.Element | None, e: Index) -> Condition:
    """That it is element e's, where only one of a window has its value."""
    return () if choice is None else (Compare("==", ir.Held(Range(0, 255), choice), e),)


class SpreadHalo:
    """A halo (see `halo.py`) that is filled from a tensor of windows; a thread takes a window of a unit of channels."""

    def __init__(
        self, k: Builder, of: Correlation, boxes: Boxes, source: Source, staged: Staged, turns: ir.Turns,
        spread: Spread, choices: ir.Tensor | None, some: Item, number: int = 0,
    ) -> None:  # fmt: skip
        self.k, self.of, self.boxes, self.source, self.staged = k, of, boxes, source, staged
        self.tile, self.choices, self.spread = turns.tiles[number], choices, spread
        most = HELD // boxes.unit
        outer = boxes.staged * STEP_UNITS
        self.work = Spreading(k, spread, self._sides, outer, most, self._values, self._words, self._store, some)
        self.is_held = self.work.count <= THREADS * most
        """Whether a thread can hold what it reads beside the multiplication before."""
        shape = (Number(self.work.rounds), Number(boxes.unit))
        self.value = ir.Fragment("value", staged.dtype, shape)
        self.choice = ir.Fragment("choice", "uint8", shape) if choices else None
        self.kept = list[ir.Element]()

    def declare(self) -> None:
        """What a thread holds."""
        for each in (self.value, self.choice):
            self.k.add(*([ir.Declare((each,))] if each else []))

    def fill(self, item: Item) -> None:
        self._origins(item)
        self.declare()
        self.work.fill(item)

    def load(self, item: Item) -> None:
        """Into what is held; `store` must follow, of the same item."""
        self._origins(item)
        self.work.load(item)

    def store(self, item: Item) -> None:
        self.work.store(item)

    def _origins(self, item: Item) -> None:
        begin = self.source.begin(item)
        self.origin = ir.Pointer("origin", self.source.tensor, begin)
        self.k.add(ir.Declare(self.origin))
        if self.choices:
            self.of_choices = ir.Pointer("chosen", self.choices, begin)
            self.k.add(ir.Declare(self.of_choices))

    def _sides(self, item: Item) -> Sides:
        boxes, found = self.boxes, list[Side]()
        for dim, (axis, name) in enumerate(zip(self.of.axes, DIMS[-len(self.of.axes) :], strict=True)):
            first, start = axis.shifts[0], item.box[dim] * axis.in_stride
            start = start + first if first >= 0 else start - -first
            step = 0 if boxes.boxes[dim] == 1 else boxes.box[dim] * axis.in_stride
            stride, size = self.source.strides[2 + dim], self.spread.sizes[dim]
            found.append(Side(name, start, first, step, boxes.halo[dim], axis.extent, stride, size))
        return tuple(found)

    def _values(self, r: Index, u: Index, far: Index, inside: Condition) -> None:
        k, unit = self.k, self.boxes.unit
        with k.unrolled("k", Number(unit)) as number:
            channel = u * unit + number
            guard = flag(k, "there", (*inside, *there(self.of, self.boxes, self.source, channel)))
            at = far + channel * self.source.strides[1]
            k.add(ir.Load(ir.Element(self.value, (r, number)), ir.Global(self.origin, at), guard))
            if self.choice:
                k.add(ir.Load(ir.Element(self.choice, (r, number)), ir.Global(self.of_choices, at), guard))

    def _words(self, r: Index) -> None:
        """Channels as they are kept."""
        k, staged = self.k, self.staged
        held = ir.Fragment("channels", staged.element, self.value.shape[1:])
        k.add(ir.Declare((held,)))
        with k.unrolled("k", Number(self.boxes.unit)) as number:
            value, into = ir.Element(self.value, (r, number)), ir.Element(held, (number,))
            k.add(ir.Convert(into, staged.through(value)))
        self.kept = [ir.Element(held, (number,)) for number in map(Number, range(self.boxes.unit))]

    def _store(self, r: Index, u: Index, e: Index, places: list[Index]) -> None:
        k, boxes, many = self.k, self.boxes, self.staged.of_word
        *outer, last = places
        if boxes.lane_stride > 1:  # as `halo.py` deals them
            last = last % boxes.lane_stride * boxes.lane_row + last // boxes.lane_stride
        rows = [at * stride for at, stride in zip(outer, contiguous(boxes.stored)[:-1], strict=True)]
        unit = pack("unit", self.staged.kept)
        k.add(ir.Declare((unit,)))
        for word in range(WORDS):
            values = [self._of_element(r, e, word * many + half) for half in range(many)]
            self.staged.put(ir.Element(unit, (Number(word),)), values)
        to = (u * boxes.points + total([*rows, last])) * WORDS
        k.add(ir.Store(ir.Element(unit), ir.InShared(self.tile, (to,))))

    def _of_element(self, r: Index, e: Index, number: int) -> ir.Element:
        """What an element has of a window's channel."""
        value = self.kept[number]
        if self.choice is None:
            return value
        found = ir.Element(ir.Fragment("found", value.of.dtype))
        test = chosen(ir.Element(self.choice, (r, Number(number))), e)
        self.k.add(ir.Convert(found, value, declares=True, guard=test))
        return found
