"""Gradients of windows in stages: what a pool's backward would write for another kernel to read is made where planes of
input are staged. A thread takes a window of a unit of channels and stores those of its elements that lie in the plane,
so an element costs no load, and no test but that it is the chosen one."""

from __future__ import annotations

import math

from crucible.algebra.convolution.windows import Spread
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Index, Number, Range
from crucible.kinds.convolution.streams.frame import Frame, Item
from crucible.kinds.convolution.streams.positions import first_of
from crucible.kinds.convolution.walks.frame import WORDS
from crucible.kinds.indices import total
from crucible.schedule.convolution.halo import STEP_UNITS


class Windows:
    """Of a tensor that has an element for each window."""

    def __init__(self, frame: Frame, k: Builder, spread: Spread) -> None:
        self.frame, self.k, self.streams, self.spread = frame, k, frame.streams, spread
        self.rows, self.columns = frame.streams.windows_of_plane
        self.sizes = frame.streams.window
        self.count = self.rows * self.columns * STEP_UNITS
        self.registers = frame.streams.unit * (2 if spread.choices else 1)
        self.first_element: Index = ZERO
        """Of a window's in this plane."""
        self.there: Condition = ()
        """Whether there is such a plane."""

    def begin(self, item: Item, s: Index, depth: Index | None) -> None:
        """Where a stage's channels of an image are."""
        k, frame, streams = self.k, self.frame, self.streams
        at = item.image * frame.source.strides[0] + s * frame.step_stride
        if depth is not None:
            d, size = k.let("d", depth, "int"), self.spread.sizes[0]
            whole = streams.of.axes[0].extent // size
            self.there = k.test("there", (Compare("in", d, Number(whole * size)),))
            before = max(0, -(streams.of.axes[0].shifts[0] // size))  # whole windows: what is divided is not negative
            plane = k.let("plane", d + before * size, "int") if before else d
            number = plane // size - before
            at = at + number * frame.source.strides[2]
            if self.spread.choices:
                self.first_element = k.let("first_element", plane % size * math.prod(self.sizes), "int")
        tensors = [frame.source.tensor, *([frame.choices] if frame.choices else [])]
        self.origins = [ir.Pointer(name, each, at) for name, each in zip(("origin", "chosen"), tensors, strict=False)]
        k.add(*map(ir.Declare, self.origins))

    def hold(self, together: Index) -> None:
        """Values of so many windows, and the elements that have them."""
        shape = together, Number(self.streams.unit)
        self.values = ir.Fragment("value", self.frame.conv.source.dtype, shape)
        self.choices = [ir.Fragment("choice", "uint8", shape)] if self.spread.choices else []
        self.k.add(*(ir.Declare((each,)) for each in (self.values, *self.choices)))

    # loads

    def load(self, item: Item, round_: Index, number: Index, s: Index, *, guarded: bool) -> None:
        k, frame, streams = self.k, self.frame, self.streams
        number = k.let("number", number, "int")
        u, *windows = self._window(number)
        tests = [*self._is_there(number, guarded=guarded), *self.there]
        terms, rank = list[Index](), len(streams.box)
        for dim in range(max(0, rank - 2), rank):
            axis, size = streams.of.axes[dim], self.spread.sizes[dim]
            begin = item.starts[dim] * axis.in_stride // size if streams.places[dim] > 1 else ZERO
            far = first_of(streams, dim) // size
            at = begin + windows[dim - rank]
            at = k.let(frame.dims[dim], at - -far if far < 0 else at + far, "int")
            tests.append(Compare("in", at, Number(axis.extent // size)))
            terms.append(at * frame.source.strides[2 + dim])
        inside = k.test("inside", tuple(tests))
        of_channel, each = frame.source.strides[1], streams.unit * STEP_UNITS
        place = k.let("place", total([*terms, u * streams.unit * of_channel]), "int")
        names = ("values", "choices")
        sources = [ir.Pointer(name, of, place) for name, of in zip(names, self.origins, strict=False)]
        k.add(*map(ir.Declare, sources))
        ragged = streams.of.in_channels % each
        with k.unrolled("j", Number(streams.unit)) as j:
            channel = s * each + u * streams.unit + j
            guard = (*inside, *((Compare("<", channel, Number(streams.of.in_channels)),) if ragged else ()))
            for into, source in zip((self.values, *self.choices), sources, strict=True):
                k.add(ir.Load(ir.Element(into, (round_, j)), ir.Global(source, j * of_channel), guard))

    def _is_there(self, number: Index, *, guarded: bool) -> Condition:
        return (Compare("<", number, Number(self.count)),) if guarded else ()

    def _window(self, number: Index) -> tuple[Index, Index, Index]:
        """Which unit of channels a piece is of; its window's row and column."""
        k, windows = self.k, self.rows * self.columns
        u, window = k.let("u", number // windows, "int"), k.let("window", number % windows, "int")
        row, column = window // self.columns, window % self.columns
        return u, k.let("window_row", row, "int"), k.let("window_column", column, "int")

    # stores

    def store(self, round_: Index, number: Index, *, guarded: bool) -> None:
        k, streams = self.k, self.streams
        number = k.let("number", number, "int")
        u, *windows = self._window(number)
        with k.when(self._is_there(number, guarded=guarded)):
            kept = "half" if streams.unit == 8 else self.frame.dtype
            words = ir.Fragment("word", kept, (Number(streams.unit),))
            k.add(ir.Declare((words,)))
            with k.unrolled("j", Number(streams.unit)) as j:
                k.add(ir.Convert(ir.Element(words, (j,)), ir.Element(self.values, (round_, j))))
            with k.unrolled("e", Number(math.prod(self.sizes))) as e:
                self._element(words, round_, u, windows, e)

    def _element(self, words: ir.Fragment, round_: Index, u: Index, windows: list[Index], e: Index) -> None:
        """Element e of the window's in the plane, where it is loaded."""
        k, streams, tests, placed = self.k, self.streams, list[Compare](), list[Index]()
        within = (e // self.sizes[1], e % self.sizes[1])
        every = zip(
            ("row", "column"), windows, within, self.sizes, (self.rows, self.columns), streams.staged_plane,
            streams.before_window, strict=True,
        )  # fmt: skip
        for name, window, own, size, count, staged, before in every:
            at = window * size + own
            placed.append(k.let(name, at - before if before else at, "int"))
            if before or count * size > staged:
                tests.append(Compare("in", placed[-1], Number(staged)))
        with k.when(tuple(tests)):
            unit = ir.Fragment("unit", "halves" if streams.unit == 8 else self.frame.dtype, (Number(WORDS),), True)
            k.add(ir.Declare((unit,)))
            for number in range(WORDS):
                self._word(ir.Element(unit, (Number(number),)), words, round_, e)
            at = u * streams.points + self._at(*placed)
            k.add(ir.Store(ir.Element(unit), ir.InShared(self.frame.planes, (at, ZERO))))

    def _word(self, into: ir.Element, words: ir.Fragment, round_: Index, e: Index) -> None:
        """What the element has of one channel, or of two."""
        k, (number,) = self.k, into.at
        if words.dtype != "half":
            guard = self._is_chosen(round_, number, e)
            k.add(ir.Convert(into, ir.Element(words, (number,)), guard=guard))
            return
        values = list[ir.Element]()
        for half in (0, 1):
            j = number * 2 + half
            values.append(ir.Element(ir.Fragment("half", "half")))
            guard = self._is_chosen(round_, j, e)
            k.add(ir.Convert(values[-1], ir.Element(words, (j,)), declares=True, guard=guard))
        both = ir.Element(ir.Fragment("both", "halves"))
        k.add(ir.Bits(both, tuple(values)), ir.Convert(into, both))

    def _is_chosen(self, round_: Index, j: Index, e: Index) -> Condition:
        chosen = [ir.Held(Range(0, 255), ir.Element(each, (round_, j))) for each in self.choices]
        return tuple(Compare("==", each, self.first_element + e) for each in chosen)

    def _at(self, row: Index, column: Index) -> Index:
        """A row and a column of what is loaded, in its stage."""
        streams = self.streams
        column = column + streams.first_column
        if streams.lane_stride == 1:
            return row * streams.row_pitch + column
        dealt = column % streams.lane_stride * streams.lane_row
        return row * streams.row_pitch + dealt + column // streams.lane_stride
