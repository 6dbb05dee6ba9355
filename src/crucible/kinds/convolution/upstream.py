"""Gradients of an output in shared memory: for each channel the positions of a box, in a row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.windows import Spread
from crucible.algebra.program import contiguous
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Place, Size
from crucible.kinds.convolution.spread import Side, Sides, Spreading, chosen
from crucible.kinds.convolution.staged import Item, Staged, flag
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.halo import DIMS, HELD, THREADS
from crucible.schedule.convolution.weight_division import Division


@dataclass(frozen=True)
class Grad:
    """The tensor that is read, and of which channels a block reads it."""

    tensor: ir.Tensor
    strides: tuple[int, ...]
    image: Size
    """Elements from one to the next."""
    channel: Size
    first: Index
    """The first channel of a block, in its group."""
    of_group: Index
    spread: Spread | None
    """How the tensor is laid, where it is one of windows."""
    choices: ir.Tensor | None


class Upstream:
    """Nodes that fill the second tile of turns. What lies outside of the tensor is 0."""

    def __init__(
        self, k: Builder, of: Correlation, division: Division, grad: Grad, staged: Staged, turns: ir.Turns
    ) -> None:
        self.k, self.of, self.division, self.grad, self.staged, self.turns = k, of, division, grad, staged, turns
        self.places = math.prod(division.box) // staged.of_word
        """Positions that are loaded at once: two of a half type."""

    @property
    def tile(self) -> ir.Shared:
        return self.turns.tiles[1]

    def fill(self, item: Item) -> None:
        """A thread takes a position (two of a half type) of all channels; or a window of one."""
        if self.grad.spread:
            _OfWindows(self, self.grad.spread, item).fill(item)
            return
        many = self.staged.of_word
        with self._positions() as p:
            spots = [self._spot(item, p * many + half, f"_{half}" if many > 1 else "") for half in range(many)]
            with self._channels(item) as (c, of_channel):
                read = [(ir.Global(of_channel, far), (*inside, *self.inside(c))) for inside, far in spots]
                word = ir.Element(ir.Fragment("word", self.staged.kept))
                self.staged.word(word, read, declares=True)
                self.k.add(ir.Store(word, self._at(self.tile, c, p)))

    def ask(self, item: Item) -> None:
        """The same by copies that go on beside what follows, each a float32 as it is; `settle` must follow when they
        have come."""
        with self._positions() as p:
            inside, far = self._spot(item, p, "")
            with self._channels(item) as (c, of_channel):
                to = self._at(self.turns.into[1], c, p)
                self.k.add(ir.AsyncCopy(to, ir.Global(of_channel, far), (*inside, *self.inside(c))))

    def settle(self) -> None:
        """What this thread copied, as tensor cores take it."""
        if self.staged.is_copied:
            return
        came, word = (ir.Element(ir.Fragment(name, dtype)) for name, dtype in
                      (("came", "word"), ("word", self.staged.kept)))  # fmt: skip
        with self.k.own(self.tile), self._positions() as p, self._each_channel() as c:
            self.k.add(ir.Load(came, ir.InShared(self.tile, self._at(self.tile, c, p).at), declares=True))
            self.staged.settle(word, came, declares=True)
            self.k.add(ir.Store(word, self._at(self.tile, c, p)))

    def _at(self, tile: ir.Shared, c: Index, p: Index) -> ir.InShared:
        return ir.InShared(tile, (c * self.division.pitch + p,))

    # positions and channels

    @property
    def _together(self) -> int:
        """Threads of a position, which share its channels where there are fewer positions than threads."""
        return math.gcd(THREADS // self.places, self.division.channels) if THREADS % self.places == 0 else 1

    @contextmanager
    def _positions(self) -> Iterator[Index]:
        k, thread = self.k, Place("thread", THREADS)
        if self._together > 1:
            with k.scope():
                yield k.let("p", thread % self.places, "int")
            return
        with k.loop("p", thread, Number(self.places), Number(THREADS), "int") as p:
            yield p

    @contextmanager
    def _each_channel(self) -> Iterator[Index]:
        first = Place("thread", THREADS) // self.places if self._together > 1 else ZERO
        ends = first, Number(self.division.channels), Number(self._together)
        with self.k.loop("c", *ends, "int", together=8) as c:
            yield c

    @contextmanager
    def _channels(self, item: Item) -> Iterator[tuple[Index, ir.Pointer]]:
        with self._each_channel() as c:
            of_channel = ir.Pointer("of_channel", self.grad.tensor, self.begin(item, c))
            self.k.add(ir.Declare(of_channel))
            yield c, of_channel

    def begin(self, item: Item, c: Index) -> Index:
        """Of a channel of an item in the tensor."""
        grad = self.grad
        number = grad.of_group * self.of.out_channels + grad.first
        return item.image * grad.image + (number + c) * grad.channel

    def inside(self, c: Index) -> Condition:
        if self.of.out_channels % self.division.channels:
            return (Compare("<", self.grad.first + c, Number(self.of.out_channels)),)
        return ()

    def _spot(self, item: Item, number: Index, suffix: str) -> tuple[Condition, Index]:
        """Of a position: whether it is inside of the tensor, and where."""
        k, division, terms, tests = self.k, self.division, list[Index](), list[Compare]()
        names = DIMS[-len(self.of.axes) :]
        for dim, at in enumerate(decoded(number, division.box)):
            place = k.named(f"{names[dim]}{suffix}", item.box[dim] + at)
            if division.boxes[dim] * division.box[dim] > self.of.axes[dim].outputs:
                tests.append(Compare("<", place, Number(self.of.axes[dim].outputs)))
            terms.append(place * self.grad.strides[2 + dim])
        inside = flag(k, f"inside{suffix}", tuple(tests))
        return inside, k.named(f"from{suffix}", total(terms))


class _OfWindows:
    """The same from a tensor of windows: a thread takes a window of one channel."""

    def __init__(self, of: Upstream, spread: Spread, some: Item) -> None:
        self.of, self.item = of, some
        self.work = Spreading(
            of.k, spread, self._sides, of.division.channels, HELD, self._values, self._words, self._store, some
        )
        shape = (Number(self.work.rounds),)
        self.value = ir.Fragment("value", of.staged.dtype, shape)
        self.choice = ir.Fragment("choice", "uint8", shape) if of.grad.choices else None

    def fill(self, item: Item) -> None:
        k = self.of.k
        with k.scope():
            for each in (self.value, self.choice):
                k.add(*([ir.Declare((each,))] if each else []))
            self.work.fill(item)

    def _sides(self, item: Item) -> Sides:
        division, axes, spread = self.of.division, self.of.of.axes, self.work.spread
        found = []
        for dim, (axis, n) in enumerate(zip(axes, division.box, strict=True)):
            step = n if division.boxes[dim] > 1 else 0
            stride, name = self.of.grad.strides[2 + dim], DIMS[-len(axes) :][dim]
            found.append(Side(name, item.box[dim], 0, step, n, axis.outputs, stride, spread.sizes[dim]))
        return tuple(found)

    def _values(self, r: Index, u: Index, far: Index, inside: Condition) -> None:
        of = self.of
        guard = flag(of.k, "there", (*inside, *of.inside(u)))
        at = of.begin(self.item, u) + far
        of.k.add(ir.Load(ir.Element(self.value, (r,)), ir.Global(of.grad.tensor, at), guard))
        if self.choice and of.grad.choices:
            of.k.add(ir.Load(ir.Element(self.choice, (r,)), ir.Global(of.grad.choices, at), guard))

    def _words(self, r: Index) -> None:
        """As it is kept."""
        staged = self.of.staged
        value = staged.through(ir.Element(self.value, (r,)))
        self.kept = ir.Element(ir.Fragment("word", staged.element))
        self.of.k.add(ir.Convert(self.kept, value, declares=True))

    def _store(self, r: Index, u: Index, e: Index, places: list[Index]) -> None:
        k, division, value = self.of.k, self.of.division, self.kept
        if self.choice:
            found = ir.Element(ir.Fragment("found", value.of.dtype))
            test = chosen(ir.Element(self.choice, (r,)), e)
            k.add(ir.Convert(found, value, declares=True, guard=test))
            value = found
        row = ir.Pointer("row", self.of.tile, u * division.pitch)
        at = total([place * stride for place, stride in zip(places, contiguous(division.box), strict=True)])
        is_half = self.of.staged.of_word > 1
        k.add(ir.Declare(row), ir.Store(value, ir.InShared(row, (at,), halved=is_half)))
