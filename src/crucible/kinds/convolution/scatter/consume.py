"""Warpgroups that multiply: 64 positions of a row, which a lane holds, by all taps, chunk by chunk of channels. Sums of
taps of the inner dim stay in registers from one place of it to the next; those of the place that no later input adds to
leave."""

from __future__ import annotations

from typing import Literal

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Either, Index, Number, Variable
from crucible.kinds.convolution.scatter.add import Adding
from crucible.kinds.convolution.scatter.frame import Frame, Item
from crucible.schedule.convolution.halo import STEP_UNITS
from crucible.schedule.convolution.warpgroup.scatter import CHANNELS, POSITIONS, TEAMS
from crucible.schedule.convolution.warpgroup.walks import WARPS

HELD = 4
"""Words of a lane for a step: two neighbouring positions of two channels."""


class Consuming:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index, team: Variable) -> None:
        self.frame, self.k, self.division = frame, k, frame.division
        self.lane, self.warp, self.team = lane, warp, team
        groups, columns = Number(self.division.groups), Number(self.division.columns // 2)
        is_one = groups == ONE
        self.sums = ir.Fragment("sums", "float32", (columns,) if is_one else (groups, columns))
        self.waits: Literal["each", "all"] = "each" if is_one else "all"

    def consume(self) -> None:
        k, frame = self.k, self.frame
        self.own = k.let("own_column", self.warp % WARPS * 16 + self.lane // 4 * 2, "int")
        self.adding = Adding(frame, k, self.team, self.lane, self.warp)
        k.add(ir.Declare((self.sums,)))
        with frame.items(k) as item:
            self.adding.clear()
            with k.loop("row", *item.rows, Number(TEAMS), "int") as row:
                self.who = k.test("mine", (Compare("<", row + self.team, item.rows[1]),))
                self._planes(item, row)
            self.adding.rest(item)

    def _planes(self, item: Item, row: Index) -> None:
        """Every place of the inner dim by turns."""
        k, division, (first, last) = self.k, self.division, item.planes
        if division.inner is None:
            self._chunks(item, row, ZERO, ZERO)
            self.adding.add(item, row, ZERO, self._of(ZERO), self.who)
            return
        end = last + (division.groups - 1)
        groups, several = Number(division.groups), division.groups > 1
        with k.loop("begin_plane", first, end, groups, "int") as begin, k.unrolled("phase", groups) as phase:
            plane = k.let("plane", begin + phase, "int")
            with k.when((Compare("<", plane, end),) if several else (), is_rest=True, ends=True):
                with k.when((Compare("<", plane, last),) if several else ()):
                    self._chunks(item, row, plane, phase)
                self.adding.add(item, row, plane, self._of(phase), self.who)

    def _of(self, group: Index) -> ir.Element:
        """Sums of a thread for one place of the inner dim."""
        return ir.Element(self.sums, (group,) if len(self.sums.shape) > 1 else ())

    def _chunks(self, item: Item, row: Index, plane: Index, phase: Index) -> None:
        """Of a row of inputs by all taps."""
        k, division = self.k, self.division
        with self.frame.chunks(k) as chunk, k.drain(self.frame.slots, self.who):
            self._begin(item, row, plane, chunk)
            later = (Compare("<", item.planes[0], plane),) if division.inner is not None else ()
            (self._kept if division.exact else self._rounded)(phase, chunk, later)

    def _rounded(self, phase: Index, chunk: Index, later: Condition) -> None:
        """All taps of a chunk, added to what there is: tensor cores begin with the first half while the second comes
        into registers."""
        k, division = self.k, self.division
        half, inputs = division.chunk // 2, self._inputs("inputs")
        k.add(ir.Declare((inputs,)))
        for first, end in [(0, half), (half, division.chunk)] if half else [(0, 1)]:
            with k.unrolled("k", Number(end), Number(first)) as step:
                self._load(step, inputs, None)
            is_last = end == division.chunk
            k.add(*([ir.Leave(self.frame.slots)] if is_last else []))
            with (
                k.products(self.sums, self.waits if is_last else "later"),
                k.unrolled("k", Number(end), Number(first)) as step,
            ):
                b = self._described(chunk, step)
                for group, column, begins in self._groups():
                    adds = _added(step + chunk, () if begins else later)
                    k.add(ir.Product(self._of_group(phase, group), ir.Element(inputs, (step,)), (b, column), *adds))

    def _kept(self, phase: Index, chunk: Index, later: Condition) -> None:
        """The same in float32: of a chunk by itself, what is small first, then added to what there is. Tensor cores cut
        something off at each addition: by a model of that P90's gradient is 1.6e-7 off so, 1.7e-6 if added at once."""
        k, division = self.k, self.division
        parts = self._inputs("inputs"), self._inputs("lower_inputs")
        fresh = ir.Fragment("fresh", "float32", self.sums.shape[-1:])
        k.add(ir.Declare(parts))
        with k.unrolled("k", Number(division.chunk)) as step:
            self._load(step, *parts)
        k.add(ir.Leave(self.frame.slots), ir.Declare((fresh,)))
        for group, column, begins in self._groups():
            with k.products(fresh):
                for number, words in enumerate(division.word_passes):
                    with k.unrolled("k", Number(division.chunk)) as step:
                        columns = self._described(chunk, step), column + words.of_weight * division.weight_units
                        adds, or_where = ((), ()) if number else _added(step, ())
                        rows = ir.Element(parts[words.of_input], (step,))
                        k.add(ir.Product(ir.Element(fresh), rows, columns, adds, or_where))
            k.add(ir.Collect(self._of_group(phase, group), fresh, *_added(chunk, () if begins else later)))

    def _groups(self) -> list[tuple[int, int, bool]]:
        """Of each place of the inner dim: its number, its first column of weights, and whether a row begins it."""
        division, inner = self.division, [tap[0] for tap in self.division.taps]
        is_walked = division.inner is not None
        return [
            (group, inner.index(group) * CHANNELS, not is_walked or group == division.groups - 1)
            for group in dict.fromkeys(inner)
        ]

    def _of_group(self, phase: Index, group: int) -> ir.Element:
        return self._of((phase + group) % self.division.groups)

    def _described(self, chunk: Index, step: Index) -> ir.Matrix:
        """The weights of a step of channels."""
        division = self.division
        units = STEP_UNITS * division.every_column
        matrix = ir.Matrix("b", self.frame.weights, division.every_column)
        self.k.add(ir.Describe(matrix, chunk * (division.chunk * units) + step * units))
        return matrix

    # inputs

    def _inputs(self, name: str) -> ir.Fragment:
        return ir.Fragment(name, "tf32", (Number(self.division.chunk), Number(HELD)))

    def _begin(self, item: Item, row: Index, plane: Index, chunk: Index) -> None:
        """Where a lane's inputs lie in a slot, and which are inside of the row."""
        k, division, frame = self.k, self.division, self.frame
        row = row if division.is_joined else row + self.team
        channel = chunk * (division.chunk * CHANNELS) + self.lane % 4
        before = k.let("before", frame.begins(item, channel, row, plane) % 4, "int")
        at = self.lane % 4 * division.pitch + self.team * division.team_words + before + self.own
        self.at = ir.Pointer("own", frame.stage, at)
        k.add(ir.Declare(self.at))
        extent = division.axis(division.last).extent
        self.inside: list[ir.Element | None] = [None, None]
        if extent < POSITIONS or not division.is_whole:
            columns = Number(extent) if division.is_whole else Number(extent) - item.column
            places = ("inside", self.own), ("next_inside", self.own + 1)
            for i, (name, place) in enumerate(places):
                mask = self.inside[i] = ir.Element(ir.Fragment(name, "word"))
                k.add(ir.Value(mask, Either((Compare("<", place, columns),), Number(-1), ZERO)))

    def _load(self, step: Index, into: ir.Fragment, lower: ir.Fragment | None) -> None:
        """Of a step: two neighbouring positions of two channels; 0 beyond a row."""
        k, pitch = self.k, self.division.pitch
        for upper in (0, 1):
            at = step * (CHANNELS * pitch) + upper * 4 * pitch
            pair = ir.Fragment("pair", "float32", (Number(2),), packed=True)
            if self._is_even:
                k.add(ir.Load(ir.Element(pair), ir.InShared(self.at, (at,)), declares=True))
            for i in (0, 1):
                value = ir.Element(pair, (Number(i),))
                if not self._is_even:
                    value = ir.Element(ir.Fragment("value", "float32"))
                    k.add(ir.Load(value, ir.InShared(self.at, (at + i,)), declares=True))
                self._convert((step, Number(upper * 2 + i)), value, self.inside[i], into, lower)

    def _convert(
        self, at: tuple[Index, ...], value: ir.Element, inside: ir.Element | None, into: ir.Fragment,
        lower: ir.Fragment | None,
    ) -> None:  # fmt: skip
        if lower is None:
            self.k.add(ir.Convert(ir.Element(into, at), value, mask=inside))
            return
        word = ir.Element(ir.Fragment("word", "word"))
        self.k.add(ir.Convert(word, value, declares=True, mask=inside))
        self.k.add(ir.Split(ir.Element(into, at), word, "high"))
        self.k.add(ir.Split(ir.Element(lower, at), word, "low", settles=True))

    @property
    def _is_even(self) -> bool:
        """Whether every row begins with a pair of words that one load takes."""
        division = self.division
        own = [division.box[-1], division.axis(division.last).shifts[0]] if not division.is_whole else []
        read = [0, 1, 2 + division.outer, *([2 + division.inner] if division.inner is not None else [])]
        strides = [self.frame.source.strides[dim].value for dim in read]
        return all(n % 2 == 0 for n in (*strides, division.team_words, *own))


def _added(round_: Index, later: Condition) -> tuple[Condition | None, Condition]:
    """Whether there is something in sums: in a row of inputs from its second round on, or from rows before."""
    if round_ == ZERO:
        return later or None, ()
    return (Compare(">=", round_, ONE),), later
