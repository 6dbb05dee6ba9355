"""Warpgroups that stage planes of input: a copy for each tap of a row, in units of four words whose positions are those
that one instruction adds up. A thread takes a piece of one channel's row at a time."""

from __future__ import annotations

import itertools

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Index, Number, Place, Range, Variable
from crucible.kernel.places import ITEM_BYTES
from crucible.kinds.convolution.walks.frame import UNIT
from crucible.kinds.convolution.weight_groups.bring import bring
from crucible.kinds.convolution.weight_groups.frame import CONSUMERS, Frame, Item
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.warpgroup.weight_shape import COLUMNS

WORDS = 4
"""Of a unit."""


class Producing:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index) -> None:
        self.frame, self.k, self.walks, self.lane = frame, k, frame.walks, lane
        walks = self.walks
        self.thread = k.let("thread", Place("thread", walks.threads) - CONSUMERS, "int")
        frame.enter(k)
        self.threads = walks.staging_warps * 32
        self.together = walks.pieces_together
        self.is_all = self.together == -(-walks.pieces // self.threads)
        shape = tuple(map(Number, (self.together, walks.piece_loads, walks.loads)))
        self.found = ir.Fragment("found", frame.source.dtype, shape, packed=True)
        self.chosen = ir.Fragment("chosen", "uint8", shape, packed=True)

    def produce(self) -> None:
        k, frame, walks = self.k, self.frame, self.walks
        brings = walks.raw > 0 and not walks.has_bringer
        ahead = bring(frame, k, self.lane, (Compare("<", self.thread, Number(32)),)) if brings else None
        if ahead:
            with k.loop("k", ONE, Number(walks.raw), type="int"):
                k.add(ir.Ask(ahead))
        with frame.items(k) as item:
            origins = self._origins(item)
            with k.loop("t", ZERO, frame.read_planes(item), type="int") as t:
                plane = frame.reads(item.box[0], 0) + t
                plane = k.let("d", plane, "int") if len(walks.of.axes) > 2 else plane
                with k.fill(frame.ring):
                    if ahead:
                        k.add(ir.Ask(ahead))
                    self._plane(item, plane, origins)

    def _origins(self, item: Item) -> list[ir.Pointer]:
        """Of an image's channels, and of their choices."""
        frame, (image, channel) = self.frame, self.frame.strides[0]
        tensors = [] if self.walks.raw else [frame.source, *([frame.choices] if frame.choices else [])]
        at = item.image * image + frame.first_input * channel
        names = ("origin", "origin_of_choices")
        found = [ir.Pointer(name, each, at) for name, each in zip(names, tensors, strict=False)]
        self.k.add(*map(ir.Declare, found))
        return found

    def _plane(self, item: Item, plane: Index, origins: list[ir.Pointer]) -> None:
        raw = self.frame.ring.fed_by
        if raw is None:
            self._pieces(item, plane, origins)
            return
        with self.k.drain(raw):
            self._pieces(item, plane, origins)

    def _pieces(self, item: Item, plane: Index, origins: list[ir.Pointer]) -> None:
        """First all that a thread loads at once, then the slot is waited for, then they are stored."""
        if self.is_all:
            self._staged(item, plane, origins, self.thread)
            return
        step = Number(self.together * self.threads)
        with self.k.loop("first", self.thread, Number(self.walks.pieces), step, "int") as first:
            self._staged(item, plane, origins, first)

    def _staged(self, item: Item, plane: Index, origins: list[ir.Pointer], first: Index) -> None:
        k, rounds = self.k, Number(self.together)
        k.add(ir.Declare((self.found,)), *([ir.Declare((self.chosen,))] if self.frame.choices else []))
        with k.unrolled("k", rounds) as round_:
            p = k.let("p", first + round_ * self.threads, "int")
            self._load(item, plane, origins, p, round_)
        k.add(ir.Vacant(self.frame.ring))
        with k.unrolled("k", rounds) as round_:
            p = k.let("p", first + round_ * self.threads, "int")
            with k.when(self._is_there(p)):
                self._store(p, round_)

    def _is_there(self, p: Index) -> Condition:
        walks = self.walks
        return (Compare("<", p, Number(walks.pieces)),) if walks.pieces % (self.threads * self.together) else ()

    def _piece(self, p: Index, *, has_tile: bool = True) -> list[Index]:
        """Tile, row, place in it and channel: channels lie beside each other, so that stores of 16 bytes have no bank
        conflicts."""
        walks, named = self.walks, self.k.named
        tile, *rest = decoded(p, (walks.channel_tiles, walks.staged_rows, walks.pieces_a_row, COLUMNS))
        first = named("tile", tile) if has_tile else ZERO
        return [first, *(named(name, at) for name, at in zip(("row", "b", "c"), rest, strict=True))]

    # loads

    def _load(self, item: Item, plane: Index, origins: list[ir.Pointer], p: Index, round_: Index) -> None:
        k, walks, frame, rank = self.k, self.walks, self.frame, len(self.walks.of.axes)
        tile, row, b, c = self._piece(p)
        channel, at = tile * COLUMNS + c, list[Index]()
        if rank > 2:
            at.append(plane)
        if rank > 1:
            at.append(k.let("h", frame.reads(item.box[1], 1) + row, "int"))
        before = walks.before - walks.taps[2].first
        w = (item.box[2] + b * walks.piece) * walks.strides[2]
        w = k.let("w", w - before if before >= 0 else w + -before, "int")
        source, *more = self._sources(origins, channel, row, (*at, w))
        k.add(*map(ir.Declare, more))
        inside = k.test("inside", (*self._is_there(p), *self._is_inside(channel, at)))
        if isinstance(source.of, ir.Pointer) and walks.raw:
            k.add(ir.Declare(source.of))
        k.add(ir.Declare(source))
        with k.unrolled("v", Number(walks.piece_loads)) as v:
            self._packs([source, *more], round_, v, (*inside, *self._within(v, w)))

    def _is_inside(self, channel: Index, at: list[Index]) -> list[Compare]:
        """That there are such a channel, plane and row."""
        walks, tests = self.walks, list[Compare]()
        if walks.of.in_channels % (walks.channel_tiles * COLUMNS):
            tests.append(Compare("<", self.frame.first_input + channel, Number(walks.of.in_channels)))
        extents = walks.extents[3 - len(walks.of.axes) :]
        return [*tests, *(Compare("in", each, Number(n)) for each, n in zip(at, extents, strict=False))]

    def _sources(
        self, origins: list[ir.Pointer], channel: Index, row: Index, at: tuple[Index, ...]
    ) -> list[ir.Pointer]:  # fmt: skip
        """Where a piece begins: in a channel that was brought, or in the tensor, and among the choices."""
        walks, frame = self.walks, self.frame
        if walks.raw:
            pitch = walks.raw_pitch * UNIT // ITEM_BYTES[frame.source.dtype]
            of_channel = ir.Pointer("of_channel", frame.brought, channel * pitch)
            return [ir.Pointer("from", of_channel, row * walks.extents[2] + at[-1])]
        places = [each * stride for each, stride in zip(at, frame.operands[0].strides[2:], strict=True)]
        place = total([channel * frame.strides[0][1], *places])
        return [ir.Pointer(name, of, place) for name, of in zip(("from", "which"), origins, strict=False)]

    def _within(self, v: Index, w: Index) -> Condition:
        """What tells whether a load of a piece lies in its row, asked of those alone that may not."""
        walks = self.walks
        low, high = walks.safe_loads
        if low == 0 and high == walks.piece_loads:
            return ()
        safe = [*([Compare(">=", v, Number(low))] if low else [])]
        safe += [Compare("<", v, Number(high))] if high < walks.piece_loads else []
        at, extent = w + v * walks.loads, Number(walks.extents[2])
        return (Compare("in", at, extent, tuple(safe) if high > low else ()),)

    def _packs(self, sources: list[ir.Pointer], round_: Index, v: Index, guard: Condition) -> None:
        for into, source in zip((self.found, self.chosen), sources, strict=False):
            at = v * self.walks.loads
            spot = ir.InShared(source, (at,)) if self.walks.raw else ir.Global(source, at)
            self.k.add(ir.Load(ir.Element(into, (round_, v)), spot, guard, branches=True))

    # stores

    def _store(self, p: Index, round_: Index) -> None:
        k, walks = self.k, self.walks
        tile, row, b, c = self._piece(p, has_tile=walks.channel_tiles > 1)
        unit = (b * (walks.piece_words // 4) * walks.staged_rows + row) * walks.row_units + c
        first = tile * walks.tile_units + unit
        if not walks.windows:
            to = ir.Pointer("to", self.frame.planes, first, is_of_units=True)
            k.add(ir.Declare(to))
            self._copies(to, len(walks.taps[2].numbers), round_, ZERO)
            return
        g, body, groups = Variable("g", "int"), list[ir.Node](), walks.windows.groups
        count = len(walks.windows.elements) // groups
        to = ir.Pointer("to", self.frame.planes, first + g * (count * COLUMNS), is_of_units=True)
        with k.apart(body):
            number = k.let("first", g * walks.windows.spread.sizes[-1], "int")  # of elements that differ no further
            self._copies(to, count, round_, number)
        k.add(ir.Note("registers do not hold all words at once"))
        k.add(ir.For(g, ZERO, Number(groups), ONE, tuple(body), unrolled=False, together=1, along=(to,)))

    def _copies(self, to: ir.Pointer, taps: int, round_: Index, first: Index) -> None:
        """For the first so many taps."""
        k, walks = self.k, self.walks
        for step, half, tap in itertools.product(range(walks.piece_words // 8), (0, 1), range(taps)):
            unit = ir.Fragment("unit", self.frame.held, (Number(WORDS),), packed=True)
            at = (step * 2 + half) * walks.half_units + tap * COLUMNS
            with k.scope():
                k.add(ir.Declare((unit,)))
                for number in range(WORDS):
                    into = ir.Element(unit, (Number(number),))
                    self._word(into, walks.word(step, half, number), tap, round_, first)
                k.add(ir.Store(ir.Element(unit), ir.InShared(to, (Number(at), ZERO))))

    def _word(self, into: ir.Element, word: int, tap: int, round_: Index, first: Index) -> None:
        """Of a piece, as one tap reads it."""
        k, walks, taps = self.k, self.walks, self.walks.taps[2]
        shift = taps.shifts[tap] if taps.shifts else tap * taps.spacing
        values, kept = list[ir.Element](), "half" if self.frame.held == "halves" else self.frame.held
        for number in range(walks.per_word):
            at = walks.before + (word * walks.per_word + number) * walks.strides[2] + shift
            place = (round_, Number(at // walks.loads), Number(at % walks.loads))
            guard: Condition = ()
            if walks.windows:
                chosen = ir.Held(Range(0, 255), ir.Element(self.chosen, place))
                guard = (Compare("==", chosen, first + walks.windows.elements[tap].number),)
            value = ir.Element(self.found, place)
            if walks.per_word == 1:
                k.add(ir.Convert(into, value, guard=guard))
                return
            if guard:
                made = ir.Element(ir.Fragment("value", kept))
                k.add(ir.Convert(made, value, declares=True, guard=guard))
                value = made
            values.append(value)
        both = ir.Element(ir.Fragment("both", self.frame.held))
        k.add(ir.Bits(both, tuple(values)), ir.Convert(into, both))
