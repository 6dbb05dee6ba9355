"""Inputs in shared memory, as `schedule.convolution.halo` lays them: a box of positions with its halo, of a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.program import Operand
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Place, Size
from crucible.kinds.convolution.staged import WORDS, Item, Staged, flag, pack
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.halo import DIMS, STEP_UNITS, THREADS, Boxes


@dataclass(frozen=True)
class Source:
    """The tensor that is read, and of which channels a block reads it."""

    tensor: ir.Tensor
    strides: tuple[int, ...]
    image: Size
    """Elements from one to the next."""
    group: Size
    step: Size
    """Of tensor-core steps."""
    of_group: Index
    first_step: Index

    @property
    def sizes(self) -> tuple[Size, ...]:
        return self.image, self.group, self.step

    def begin(self, item: Item) -> Index:
        """Of an item's channels in the tensor."""
        return item.image * self.image + self.of_group * self.group + self.first_step * self.step


def source_of(
    operand: Operand, tensor: ir.Tensor, of: Correlation, boxes: Boxes, group: Index, first_step: Index
) -> Source:
    channel = operand.strides[1]
    image, of_group = Size("image_stride", operand.strides[0]), Size("group_stride", of.in_channels * channel)
    step = Size("step_stride", boxes.unit * STEP_UNITS * channel)
    return Source(tensor, operand.strides, image, of_group, step, group, first_step)


@dataclass(frozen=True)
class Spot:
    """A position of the halo in the tensor."""

    inside: Condition
    begin: ir.Pointer


@dataclass(frozen=True)
class Halo:
    """Nodes that fill a tile of turns. What lies outside of the tensor is 0."""

    k: Builder
    of: Correlation
    boxes: Boxes
    source: Source
    staged: Staged
    turns: ir.Turns
    lane: Index
    number: int = 0
    """Of the tile among those that turn."""

    @property
    def units(self) -> Number:
        return Number(self.boxes.staged * STEP_UNITS)

    def fill(self, item: Item) -> None:
        """A thread takes a position, or loads so many before it stores any."""
        origin = self._origin(item)
        if self.boxes.positions_together > 1:
            self._several(item, origin)
            return
        with self._positions() as p:
            spot, place = self._spot(item, origin, p), self._dealt(p)
            with self.k.unrolled("u", self.units) as u:
                unit = ir.Element(pack("unit", self.staged.kept))
                self.k.add(ir.Declare((unit.of,)))
                self._unit(unit, spot, u)
                self.k.add(ir.Store(unit, self._at(u, place)))

    def _several(self, item: Item, origin: ir.Pointer) -> None:
        k, boxes = self.k, self.boxes
        together, count = boxes.positions_together, math.prod(boxes.halo)
        sizes = (Number(together), self.units, Number(WORDS))
        held = ir.Fragment("held", self.staged.kept, sizes, packed=True)
        some = count % (THREADS * together) != 0 or boxes.lane_stride > 1
        first, step = Place("thread", THREADS), Number(THREADS * together)
        with k.loop("begin", first, Number(self._threads), step, "int") as begin:
            k.add(ir.Declare((held,)))
            with k.unrolled("r", Number(together)) as r:
                p = k.let("p", self._position(begin + r * THREADS), "int")
                there: Condition = (Compare("<", p, Number(count)),) if some else ()
                spot = self._spot(item, origin, p, there)
                with k.unrolled("u", self.units) as u:
                    self._unit(ir.Element(held, (r, u)), spot, u)
            with k.unrolled("r", Number(together)) as r:
                p = k.let("p", self._position(begin + r * THREADS), "int")
                with k.when((Compare("<", p, Number(count)),) if some else (), is_rest=True):
                    place = self._dealt(p)
                    with k.unrolled("u", self.units) as u:
                        k.add(ir.Store(ir.Element(held, (r, u)), self._at(u, place)))

    def ask(self, item: Item) -> None:
        """The same by copies that go on beside what follows, each a float32 as it is; `settle` must follow when they
        have come. Of four channels a warp's second half copies the second two first: lanes that write 4 of 16 bytes
        each have four of them in a bank, and so two."""
        k, tile = self.k, self.turns.into[self.number]
        other = k.let("other", self.lane // 16 * 2, "int")
        origin = self._origin(item)
        with self._positions() as p:
            spot, place = self._spot(item, origin, p), self._dealt(p)
            with k.unrolled("u", self.units) as u:
                to = ir.Pointer("to", tile, (u * self.boxes.points + place) * WORDS)
                k.add(ir.Declare(to))
                for word in range(WORDS):
                    own = Number(word) ^ other
                    guard, at = self._channel(spot, u, own)
                    k.add(ir.AsyncCopy(ir.InShared(to, (own,)), at, guard))

    def settle(self) -> None:
        """What this thread copied, as tensor cores take it."""
        k = self.k
        if self.staged.is_copied:
            return
        with k.own(self.turns.tiles[self.number]), self._positions() as p:
            place = self._dealt(p)
            with k.unrolled("u", self.units) as u:
                came, unit = (ir.Element(pack(name, dtype)) for name, dtype in
                              (("came", "word"), ("unit", self.staged.kept)))  # fmt: skip
                k.add(ir.Load(came, self._at(u, place), declares=True), ir.Declare((unit.of,)))
                for word in map(Number, range(WORDS)):
                    self.staged.settle(ir.Element(unit.of, (word,)), ir.Element(came.of, (word,)))
                k.add(ir.Store(unit, self._at(u, place)))

    # positions

    @property
    def _threads(self) -> int:
        """That take a position each; where they are dealt, some beyond the last one."""
        turn, count = 8 * self.boxes.lane_stride, math.prod(self.boxes.halo)
        return count if self.boxes.lane_stride == 1 else -(-count // turn) * turn

    def _position(self, number: Index) -> Index:
        """Where positions are dealt, eight threads, which store 16 bytes each at a time, take eight that will be
        neighbours."""
        stride = self.boxes.lane_stride
        if stride == 1:
            return number
        number = self.k.let("number", number, "int")
        return number // (8 * stride) * (8 * stride) + number % 8 * stride + number // 8 % stride

    @contextmanager
    def _positions(self) -> Iterator[Index]:
        """A thread a position."""
        k, count = self.k, math.prod(self.boxes.halo)
        ends = Place("thread", THREADS), Number(self._threads), Number(THREADS)
        if self.boxes.lane_stride == 1:
            with k.loop("p", *ends, "int") as p:
                yield p
            return
        with k.loop("number", *ends, "int") as number:
            p = k.let("p", self._position(number), "int")
            with k.when((Compare("<", p, Number(count)),) if count < self._threads else (), is_rest=True):
                yield p

    def _dealt(self, p: Index) -> Index:
        """Where a position lies, so that strided reads are of neighbours."""
        boxes, width = self.boxes, self.boxes.halo[-1]
        if boxes.lane_stride == 1:
            return p
        has_rows, stride = len(boxes.halo) > 1, boxes.lane_stride
        row, in_row = (p // width * boxes.stored[-1], p % width) if has_rows else (ZERO, p)
        return self.k.let("dealt", row + in_row % stride * boxes.lane_row + in_row // stride, "int")

    def _at(self, u: Index, place: Index) -> ir.InShared:
        return ir.InShared(self.turns.tiles[self.number], ((u * self.boxes.points + place) * WORDS,))

    # the tensor

    def _origin(self, item: Item) -> ir.Pointer:
        origin = ir.Pointer("origin", self.source.tensor, self.source.begin(item))
        self.k.add(ir.Declare(origin))
        return origin

    def _spot(self, item: Item, origin: ir.Pointer, p: Index, there: Condition = ()) -> Spot:
        k, boxes, terms, tests = self.k, self.boxes, list[Index](), list(there)
        names = DIMS[-len(self.of.axes) :]
        for dim, index in enumerate(decoded(p, boxes.halo)):
            axis, first = self.of.axes[dim], self.of.axes[dim].shifts[0]
            place = item.box[dim] * axis.in_stride + index
            place = k.let(names[dim], place + first if first >= 0 else place - -first, "int")
            reached = (boxes.boxes[dim] * boxes.box[dim] - 1) * axis.in_stride + axis.shifts[-1]
            if first < 0 or reached >= axis.extent:
                tests.append(Compare("in", place, Number(axis.extent)))
            terms.append(place * self.source.strides[2 + dim])
        inside = flag(k, "inside", tuple(tests))
        begin = ir.Pointer("from", origin, total(terms))
        k.add(ir.Declare(begin))
        return Spot(inside, begin)

    def _unit(self, into: ir.Element, spot: Spot, u: Index) -> None:
        """16 bytes of channels at one position."""
        many = self.staged.of_word
        for word in range(WORDS):
            read = [self._channel(spot, u, Number(word * many + half)) for half in range(many)]
            place = ir.Element(into.of, (*into.at, Number(word)))
            self.staged.word(place, [(at, guard) for guard, at in read])

    def _channel(self, spot: Spot, u: Index, own: Index) -> tuple[Condition, ir.Global]:
        """Whether there is a channel of a unit, and the element."""
        channel = u * self.boxes.unit + own
        guard = (*spot.inside, *there(self.of, self.boxes, self.source, channel))
        return guard, ir.Global(spot.begin, channel * self.source.strides[1])


def there(of: Correlation, boxes: Boxes, source: Source, channel: Index) -> Condition:
    """That a channel, counted from the first step's, is one of the group's."""
    channels = boxes.unit * STEP_UNITS
    if of.in_channels % channels or boxes.steps % boxes.staged:
        return (Compare("<", source.first_step * channels + channel, Number(of.in_channels)),)
    return ()
