"""Products of a box by warps: weights and inputs come to shared memory, each warp multiplies its channels by its
positions. See `schedule.convolution.tiling`, which says who has what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from crucible.algebra.convolution.correlation import Product
from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Compare, Either, Index, Number, Place, Range, Smaller
from crucible.kernel.tiles import MATRIX
from crucible.kinds.convolution.halo import Halo, source_of
from crucible.kinds.convolution.spread import SpreadHalo
from crucible.kinds.convolution.staged import Item, Staged
from crucible.kinds.convolution.warps.frame import UNIT, Frame
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.halo import STEP_UNITS, THREADS


class Staging:
    """How weights and inputs come: when they are needed, or beside the products before."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.k, self.tiling, self.turns = frame, frame.k, frame.tiling, frame.turns
        conv, spread = frame.conv, frame.conv.spread
        staged = Staged(self.k, conv.source.dtype, conv.math, conv.front)
        source = source_of(conv.source, frame.source, frame.of, self.tiling, frame.group, ZERO)
        self.sizes = source.sizes
        given = self.k, frame.of, self.tiling, source, staged, self.turns
        self.number = 0 if self.tiling.is_resident else 1
        """Of the halo among what turns."""
        self.halo = Halo(*given, frame.lane, self.number)
        some = Item(ZERO, (ZERO,) * len(frame.of.axes))
        self.spread = SpreadHalo(*given, spread, frame.choices, some, self.number) if spread else None

    @property
    def is_held(self) -> bool:
        """Whether threads hold the next inputs beside the products before."""
        return self.spread is not None and self.spread.is_held

    def first(self) -> None:
        """Before the first item."""
        if self.tiling.is_resident:
            self._resident()
        self.frame.begin_items()
        if self.spread and self.is_held:
            self.spread.declare()
        if self.tiling.ahead or self.is_held:
            with self.k.scope():
                first = self.frame.first_item
                first = self.k.let("block", first, "int") if isinstance(first, Place) else first
                self._ask(self.frame.item(first), ZERO)

    def ready(self, item: Index, here: Item, step: Index) -> None:
        """What an item needs from channels `step` on (all there are, where weights are resident) is there."""
        k = self.k
        if self.tiling.ahead:
            k.add(ir.Turn(self.turns))
            self.halo.settle()
            k.add(ir.Sync())
            self._next(item, step)
            return
        k.add(ir.Sync("what was there before is done with"))
        if not self.tiling.is_resident:
            self._weights(self.frame.weights, step)  # goes on beside the stores
        if self.is_held and self.spread:
            self.spread.store(here)
        else:
            with k.scope():
                self._at(step).fill(here)
        k.add(*([] if self.tiling.is_resident else [ir.Turn(self.turns)]), ir.Sync())
        if self.is_held:
            self._next(item, step)

    def _next(self, item: Index, step: Index) -> None:
        """The next steps of the item, or the next item."""
        k, tiling = self.k, self.tiling
        following = item + self.frame.scene.blocks_a_part
        next_step: Index = ZERO
        if not tiling.is_resident:
            more = (Compare("<", step + tiling.staged, Number(tiling.steps)),)
            following = Either(more, item, following)
            next_step = k.let("next_step", Either(more, step + tiling.staged, ZERO), "int")
        following = k.let("next", following, "int")
        with k.when((Compare("<", following, Number(tiling.items)),)):
            self._ask(self.frame.item(following), next_step)

    def _ask(self, item: Item, step: Index) -> None:
        inputs = self._at(step)
        if isinstance(inputs, SpreadHalo):
            inputs.load(item)
            return
        if not self.tiling.is_resident:
            self._weights(self.turns.into[0], step)
        inputs.ask(item)

    def _at(self, step: Index) -> Halo | SpreadHalo:
        """Inputs of the channels from a step on."""
        if self.spread:
            self.spread.source = replace(self.spread.source, first_step=step)
            return self.spread
        return replace(self.halo, source=replace(self.halo.source, first_step=step))

    def _resident(self) -> None:
        with self._units(ZERO, Number(self.tiling.weight_words // UNIT)) as (place, source):
            self.k.add(ir.Copy(ir.InShared(self.frame.weights, place), source))

    def _weights(self, into: ir.Shared, step: Index) -> None:
        """By copies that go on beside what follows."""
        tiling, units = self.tiling, Number(self.tiling.weight_words // UNIT)
        rest = (Number(tiling.steps) - step) * (tiling.step_weight_words // UNIT)
        with self._units(step, Smaller(units, rest) if tiling.steps % tiling.staged else units) as (place, source):
            self.k.add(ir.AsyncCopy(ir.InShared(into, place), source, words=UNIT))

    @contextmanager
    def _units(self, step: Index, count: Index) -> Iterator[tuple[tuple[Index], ir.Global]]:
        """A thread's of the weights from a step on, in the order in which they are multiplied. The pointer is set in
        each round: nvcc 13.0 makes other code of one before the loop."""
        k, of_step = self.k, self.tiling.step_weight_words
        with k.loop("p", Place("thread", THREADS), count, Number(THREADS), "int") as p:
            at = self.frame.part * (self.tiling.steps * of_step) + step * of_step
            begin = ir.Pointer("begin", self.frame.packed, at)
            k.add(ir.Declare(begin))
            yield (p * UNIT,), ir.Global(begin, p * UNIT)


class Multiplying:
    """What a warp has of each product."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.k, self.tiling = frame, frame.k, frame.tiling
        self.place = frame.value("place", "int32", (-(-self.tiling.n_tiles // 2),))
        """In the halo, of the 16 bytes that a lane takes of each two tiles."""
        ends = zip(self.tiling.box, self.tiling.steps_of_outputs, strict=True)
        self.reach = Range(0, (sum((n - 1) * step for n, step in ends) + self.tiling.points) * 4, 4)
        shape = (self.tiling.slots, self.tiling.m_tiles, self.tiling.n_tiles, 4)
        self.sums = frame.value("sums", sizes=shape)

    def begin(self) -> None:
        """Where the 16 bytes of each lane are in the halo, which tensor cores are given two tiles at a time: of both
        units of channels the eight positions of a tile."""
        k, tiling, lane = self.k, self.tiling, self.frame.lane
        k.add(ir.Declare((self.place,)))
        with k.unrolled("j", Number(self.place.sizes[0])) as j:
            of_tile = (self.frame.column * tiling.n_tiles + j * 2 + lane // 16) * 8 + lane % 8
            position = k.let("position", Smaller(of_tile, Number(self.frame.positions - 1)), "int")
            steps = zip(decoded(position, tiling.box), tiling.steps_of_outputs, strict=True)
            at = total([word * step for word, step in steps]) * 4 + lane // 8 % 2 * (tiling.points * 4)
            k.add(ir.Value(ir.Element(self.place, (j,)), at, declares=False))

    def multiply(self, step: Index) -> None:
        """Over the steps that are staged."""
        k, tiling, frame = self.k, self.tiling, self.frame
        staged: Index = Number(tiling.staged)
        if tiling.steps % tiling.staged:
            staged = Smaller(staged, Number(tiling.steps) - step)
        with k.loop("s", ZERO, staged, type="int", together=1) as s:
            of_lane = frame.row * (tiling.m_tiles * MATRIX) + frame.lane * 4
            self.own = ir.Pointer("own", frame.weights, s * tiling.step_weight_words + of_lane)
            self.at = ir.Pointer("at", frame.halo, s * (STEP_UNITS * tiling.points * 4))
            columns = ir.Fragment("b", frame.kept, (Number(tiling.n_tiles), Number(2)), packed=True)
            self.columns = ir.Element(columns)
            k.add(ir.Declare(self.own), ir.Declare(self.at), ir.Declare((columns,)))
            for team in range(len(tiling.teams)):
                apart = len(tiling.teams) > 1
                with k.when((Compare("==", frame.team, Number(team)),) if apart else ()):
                    self._products(team)

    def _products(self, team: int) -> None:
        """Each neighbour is read once for all phases that take it."""
        k, tiling = self.k, self.tiling
        math = cast(ir.Math, self.frame.conv.math)
        by_shift: dict[tuple[int, ...], list[tuple[int, Product]]] = {}
        for number, product in tiling.products_of(team):
            by_shift.setdefault(product.shift, []).append((number, product))
        for shift, products in sorted(by_shift.items()):
            source = ir.InShared(self.at, (Number(tiling.shift_words(shift)),))
            k.add(ir.LoadTiles(self.columns, source, ir.Element(self.place), self.reach))
            for number, product in products:
                into = ir.Element(self.sums, (Number(tiling.teams[team].index(product.phase)),))
                rows = ir.InShared(self.own, (Number(number * tiling.channels * 8),))
                k.add(ir.MultiplyTiles(into, rows, self.columns, math))
