"""Warpgroups that multiply: tiles of 64 positions by all taps of a stage, stage by stage, into sums that stay in
registers; those of a plane of outputs that is complete leave."""

from __future__ import annotations

import itertools

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Place, Variable
from crucible.kinds.convolution.streams.frame import Frame, Item
from crucible.kinds.convolution.streams.leave import Leaving
from crucible.schedule.convolution.exact import ROUNDED, Pass
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.streams import Part
from crucible.schedule.convolution.warpgroup.walks import THREADS


class Consuming:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Variable) -> None:
        self.frame, self.k, self.streams = frame, k, frame.streams
        self.team = Variable("team", "int")
        # told so, the compiler reckons descriptors once a warp: 3 instructions a product instead of 10
        k.add(ir.Let(self.team, Place("thread", self.streams.threads) // THREADS, of_warp=True))
        self.sums = ir.Fragment("sums", "float32", (Number(self.streams.tiles), Number(self.streams.held)))
        self.leaving = Leaving(frame, k, lane, warp, self.team, self.sums)

    def consume(self) -> None:
        k, frame, more = self.k, self.frame, self.streams.live - 1
        frame.enter(k)
        self.first_tile = k.let("first_tile", self.team * self.streams.tiles, "int")
        tiles = range(self.streams.tiles)
        if not self.streams.flat:
            self.places = [k.let("place", self._tile(tile), "int") for tile in tiles]
        k.add(ir.Declare((self.sums,), "sum"))
        with frame.items(k) as item:
            if self.streams.flat:
                self.places = [k.let("place", item.first + self._tile(tile), "int") for tile in tiles]
            with k.rounds("t", item.planes + more, unrolled=False) as t:
                self._plane(item, t)
            self.leaving.end_item(item)

    def _plane(self, item: Item, t: Index) -> None:
        """Of outputs: those that have sums already move on."""
        streams = self.streams
        if streams.in_turn:
            for phase, parts in itertools.groupby(streams.parts, lambda part: part.phase):
                self._phase(item, t, phase, list(parts))
            return
        self._move_on()
        if not streams.once:
            self._each(item, t)
            return
        self._parts(item, t, 0)

    def _move_on(self) -> None:
        with self.k.unrolled("i", Number(self.streams.tiles)) as i:
            self.k.add(ir.MoveOn(ir.Element(self.sums, (i,)), self.streams.channels * self.streams.beside // 2))

    def _phase(self, item: Item, t: Index, phase: int, parts: list[Part]) -> None:
        """Of all dims but the last where there are several, from sums that begin anew."""
        self._move_on()
        for part in parts:
            self._share("s", self.streams.steps, part)
        self.leaving.leave(item, t, phase)

    def _each(self, item: Item, t: Index) -> None:
        """Parts of the same taps, by one text; as two loops, as those who stage have them, nvcc 13.0 unrolls the inner
        one."""
        streams = self.streams
        if (count := len(streams.parts)) == 1:
            self._share("s", streams.steps, streams.parts[0])
        else:
            with self.k.rounds("s", Number(streams.steps), unrolled=False):
                self._share("m", count, streams.parts[0])
        self.leaving.leave(item, t)

    def _parts(self, item: Item, t: Index, number: int) -> None:
        """Those from one on."""
        k, streams = self.k, self.streams
        if number == len(streams.parts):
            return
        self._share("s", streams.steps, streams.parts[number])
        if number == streams.last_part:
            with k.when((Compare(">=", t, Number(streams.live - 1)),) if streams.live > 1 else ()):
                self.leaving.leave(item, t)
            last = number + 1 == len(streams.parts)
            with k.when(() if last else (Compare("!=", t, item.planes + (streams.live - 2)),), is_rest=True, ends=True):
                self._parts(item, t, number + 1)
            return
        self._parts(item, t, number + 1)

    def _share(self, name: str, count: int, part: Part) -> None:
        """So many stages."""
        k, frame, body = self.k, self.frame, list[ir.Node]()
        with k.apart(body):
            if self.streams.exact:
                self._kept(part)
            else:
                with k.products(self.sums, settles=True):
                    self._products(part)
        k.add(ir.Share(frame.ring, Variable(name, "int"), Number(count), tuple(body)))

    def _products(self, part: Part) -> None:
        """All of a stage in one go."""
        k, streams = self.k, self.streams
        weights = self._weights(part)
        for tile in range(streams.tiles):
            rows = self._rows(tile)
            into = ir.Element(self.sums, (Number(tile),))
            for tap in range(len(part.taps)):
                k.add(self._product(into, rows, weights, part, tap))

    def _kept(self, part: Part) -> None:
        """The same in float32: of a tile and a stage by themselves, what is small first, then added to what there is.
        Tensor cores cut something off at each addition: by a model of that 64 channels of 3x3 are 2.6e-7 off so, and
        1.8e-6 if the products of higher words are added up over all stages."""
        k, streams = self.k, self.streams
        fresh = ir.Fragment("fresh", "float32", (Number(part.blocks * streams.channels // 2),))
        k.add(ir.Declare((fresh,)))
        weights, factor = self._weights(part), None
        if streams.scaled:
            factor = ir.Element(ir.Fragment("factor", "float32"))
            k.add(ir.Load(factor, self.frame.factor, declares=True))
        for tile in range(streams.tiles):
            rows = self._rows(tile)
            with k.products(fresh):
                for turn, words in enumerate(self.streams.word_passes):
                    for tap in range(len(part.taps)):
                        adds = () if turn or tap else None
                        k.add(self._product(ir.Element(fresh), rows, weights, part, tap, words, adds))
            k.add(ir.Collect(ir.Element(self.sums, (Number(tile),)), fresh, factor=factor))

    def _product(
        self, into: ir.Element, rows: ir.Matrix, weights: ir.Matrix, part: Part, tap: int,
        words: Pass = ROUNDED[0], adds: Condition | None = (),
    ) -> ir.Product:  # fmt: skip
        """Of a tap, of higher words or of lower ones."""
        streams, columns, ((row, column), _) = self.streams, part.blocks * self.streams.channels, part.taps[tap]
        made = streams.columns_of(part.taps[tap])
        at = tap * STEP_UNITS * columns + words.of_weight * streams.word_units(part)
        place = streams.place(row, column) + words.of_input * streams.plane_word_units
        return ir.Product(into, (rows, place), (weights, at), adds, sums=made // 2)

    def _weights(self, part: Part) -> ir.Matrix:
        weights = ir.Matrix("b", self.frame.weights, part.blocks * self.streams.channels)
        self.k.add(ir.Describe(weights, ZERO))
        return weights

    def _rows(self, tile: int) -> ir.Matrix:
        rows = ir.Matrix("a", self.frame.planes, self.streams.points, self.streams.eight)
        self.k.add(ir.Describe(rows, self.places[tile]))
        return rows

    def _tile(self, number: int) -> Index:
        """Where one of a warpgroup's is in a plane."""
        streams = self.streams
        across, down = streams.tiles_in_row, streams.tile_rows * streams.step_of_rows
        tile = self.first_tile + number
        if across > 1:
            return tile // across * down + tile % across * streams.tile_columns
        return tile * down
