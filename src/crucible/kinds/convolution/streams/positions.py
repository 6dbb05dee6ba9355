"""What a thread that stages reads of a plane of input and stores: a position of all channels of a stage."""

from __future__ import annotations

import math

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number
from crucible.kinds.convolution.split import split_scaled, split_words
from crucible.kinds.convolution.staged import Staged
from crucible.kinds.convolution.streams.frame import Frame, Item
from crucible.kinds.convolution.walks.frame import WORDS
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.streams import Streams

UNITS = Number(STEP_UNITS)


class Positions:
    """Of a tensor laid like the input."""

    def __init__(self, frame: Frame, k: Builder) -> None:
        self.frame, self.k, self.streams = frame, k, frame.streams
        self.staged = math.prod(self.streams.staged_plane)
        self.count = self.streams.dealt
        self.kept = "halves" if self.streams.item_bytes == 2 else "word"
        self.of_unit = self.streams.unit * self.streams.item_bytes // 4
        """Words."""
        self.registers = STEP_UNITS * self.of_unit
        """That a position is held in."""
        self.depth: Index | None = None
        self.scale: ir.Element | None = None
        """Of the stage that is stored."""

    def begin(self, item: Item, s: Index, depth: Index | None) -> None:
        """Where a stage's channels of an image are."""
        k, frame = self.k, self.frame
        at = item.image * frame.source.strides[0] + s * frame.step_stride
        self.origin = ir.Pointer("origin", frame.source.tensor, at)
        k.add(ir.Declare(self.origin))
        self.depth = None if depth is None else k.let("d", depth, "int")

    def hold(self, together: Index) -> None:
        """So many positions, of the turn that begins."""
        self.words = ir.Fragment("words", self.kept, (together, UNITS, Number(self.of_unit)), True)
        self.k.add(ir.Declare((self.words,)))

    # loads

    def load(self, item: Item, round_: Index, number: Index, s: Index, *, guarded: bool) -> None:
        """A position becomes one of those that are held; if `guarded` there may be none of that number."""
        k = self.k
        p = self._position(number)
        terms, tests = self._place(item, p)
        below = (Compare("<", p, Number(self.staged)),) if guarded or self.count > self.staged else ()
        inside = k.test("inside", (*below, *tests))
        source = ir.Pointer("from", self.origin, total(terms))
        k.add(ir.Declare(source))
        with k.unrolled("u", UNITS) as u:
            word = ir.Fragment("word", self.kept, self.words.shape[-1:], True)
            self._unit(word, source, u, s, inside)
            k.add(ir.Convert(ir.Element(self.words, (round_, u)), ir.Element(word)))

    def _position(self, number: Index) -> Index:
        """Where positions are dealt, eight threads, which store 16 bytes each at a time, take eight that will be
        neighbours, and other eight those between."""
        k, stride = self.k, self.streams.lane_stride
        if stride == 1:
            return k.let("p", number, "int")
        number = k.let("number", number, "int")
        dealt = number // (8 * stride) * (8 * stride) + number % 8 * stride + number // 8 % stride
        return k.let("p", dealt, "int")

    def _place(self, item: Item, p: Index) -> tuple[list[Index], list[Compare]]:
        """What a position adds to where its channels are, and the tests that it is inside."""
        streams, frame, rank = self.streams, self.frame, len(self.streams.box)
        within = decoded(p, streams.staged_plane) if rank > 1 else [p]
        terms, tests = list[Index](), list[Compare]()
        for dim, axis in enumerate(streams.of.axes):
            walked = streams.is_walked and dim == 0
            if walked:
                assert self.depth is not None
                at = self.depth
            else:
                more = first_of(streams, dim)
                at = item.starts[dim] * axis.in_stride + within[dim - rank]
                at = self.k.let(frame.dims[dim], at - -more if more < 0 else at + more, "int")
            planes = (streams.walk if walked else streams.box[dim]) * streams.places[dim]
            reached = (planes - 1) * axis.in_stride + axis.shifts[-1] + (streams.live - 1) * walked * axis.in_stride
            if axis.shifts[0] < 0 or reached >= axis.extent or (streams.flat and dim == len(streams.of.axes) - 2):
                tests.append(Compare("in", at, Number(axis.extent)))
            terms.append(at * frame.source.strides[2 + dim])
        return terms, tests

    def _unit(self, word: ir.Fragment, source: ir.Pointer, u: Index, s: Index, inside: Condition) -> None:
        """Channels of a unit, 0 where they are outside of the tensor. Where they are neighbours in memory they are
        loaded at once."""
        k, streams, frame = self.k, self.streams, self.frame
        if self._in_units:
            first = (s * STEP_UNITS + u) * streams.unit
            guard = (*inside, *self._ragged(first))
            k.add(ir.Load(ir.Element(word), ir.Global(source, u * streams.unit), guard, declares=True, branches=True))
            return
        k.add(ir.Declare((word,)))
        of_channel, each = frame.source.strides[1], streams.unit * STEP_UNITS

        def read(number: Index) -> tuple[ir.Global, Condition]:
            channel = u * streams.unit + number
            return ir.Global(source, channel * of_channel), (*inside, *self._ragged(s * each + channel))

        if self.kept == "halves":
            staged = Staged(k, frame.conv.source.dtype, frame.conv.math, None)
            for number in range(WORDS):
                staged.word(
                    ir.Element(word, (Number(number),)), [read(Number(2 * number)), read(Number(2 * number + 1))]
                )
            return
        for number in range(self.of_unit):
            k.add(ir.Load(ir.Element(word, (Number(number),)), *read(Number(number))))

    def _ragged(self, channel: Index) -> Condition:
        """That there is such a channel, where there may be none."""
        channels = self.streams.of.in_channels
        return (Compare("<", channel, Number(channels)),) if channels % (self.streams.unit * STEP_UNITS) else ()

    @property
    def _in_units(self) -> bool:
        """Whether each unit of channels is 16 bytes in memory."""
        image, channel, *rest = self.frame.conv.source.strides
        unit, of = self.streams.unit, self.streams.of
        return channel == 1 and not any(n % unit for n in (of.in_channels, image, *rest))

    # stores

    def largest(self, into: ir.Element, round_: Index) -> None:
        """Of what is held as well."""
        with self.k.unrolled("u", UNITS) as u:
            self.k.add(ir.Largest(into, ir.Element(self.words, (round_, u))))

    def store(self, round_: Index, number: Index, *, guarded: bool) -> None:
        k, planes = self.k, self.frame.planes
        p = self._position(number)
        at = self._at(p)
        is_there = (Compare("<", p, Number(self.staged)),) if guarded or self.count > self.staged else ()
        with k.when(is_there), k.unrolled("u", UNITS) as u:
            place = u * self.streams.points + at
            if not self.streams.exact:
                k.add(ir.Store(self._converted(round_, u), ir.InShared(planes, (place, ZERO))))
                return
            held = ir.Element(self.words, (round_, u))
            splits = split_scaled(held, self.scale) if self.scale else split_words(held)
            for word, split in enumerate(splits):
                to = ir.InShared(planes, (place + word * self.streams.plane_word_units, ZERO))
                k.add(split, ir.Store(split.into, to))

    def _converted(self, round_: Index, u: Index) -> ir.Element:
        """A unit, as tensor cores take it."""
        if self.kept == "halves":
            return ir.Element(self.words, (round_, u))
        unit = ir.Fragment("unit", self.frame.dtype, self.words.shape[-1:], True)
        self.k.add(ir.Declare((unit,)))
        for number in map(Number, range(WORDS)):
            self.k.add(ir.Convert(ir.Element(unit, (number,)), ir.Element(self.words, (round_, u, number))))
        return ir.Element(unit)

    def _at(self, p: Index) -> Index:
        """A position in its stage."""
        streams = self.streams
        columns, stride = streams.staged_plane[1], streams.lane_stride
        if stride == 1 and columns == streams.row_pitch:
            return p
        column, row = p % columns + streams.first_column, p // columns * streams.row_pitch
        if stride == 1:
            return row + column
        return row + column % stride * streams.lane_row + column // stride


def first_of(streams: Streams, dim: int) -> int:
    """The first of a box's rows or columns that is loaded, from what it begins with."""
    last = dim == len(streams.box) - 1
    return streams.of.axes[dim].shifts[0] + (streams.first_column if last else 0)
