"""Warpgroups that stage: a thread loads its pieces of a plane, waits for the stage, asks for the weights that come
beside them, and stores its pieces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crucible.algebra.expression import constant, tensor
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Holds, Index, Number, Place, Variable
from crucible.kinds.convolution.streams.ahead import ahead, fetches
from crucible.kinds.convolution.streams.frame import Frame, Item
from crucible.kinds.convolution.streams.parts import depth, is_over, of_part
from crucible.kinds.convolution.streams.positions import Positions
from crucible.kinds.convolution.streams.windows import Windows
from crucible.kinds.convolution.walks.frame import WORDS
from crucible.schedule.convolution.warpgroup.walks import THREADS

MOST = float.fromhex("0x1.fffffep127")
"""Of float32."""
MOST_HELD = 40
"""Registers of a thread for what is on its way, but of a stage that has a scale: for that all has to be there."""


class Producing:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index) -> None:
        self.frame, self.k, self.streams, self.lane = frame, k, frame.streams, lane
        self.lanes = self.streams.staging * THREADS
        self.thread = k.let("thread", Place("thread", self.streams.threads) % self.lanes, "int")
        self.packed = frame.packed_units(k)
        spread = frame.conv.spread
        self.reading: Positions | Windows = Windows(frame, k, spread) if spread else Positions(frame, k)
        rounds = -(-self.reading.count // self.lanes)
        self.turns = 1 if self.streams.scaled else -(-rounds // max(1, MOST_HELD // self.reading.registers))
        """How often a thread takes pieces at once."""
        self.together = -(-rounds // self.turns)

    def produce(self) -> None:
        k, frame = self.k, self.frame
        frame.enter(k)
        self.ahead = ahead(frame, k, self.thread, self.lane) if fetches(frame) else None
        with frame.items(k) as item:
            self._planes(item)

    def _planes(self, item: Item) -> None:
        """All stages of an item, by one text for all parts of a plane."""
        k, streams = self.k, self.streams
        steps, more = Number(streams.steps), streams.live - 1
        with k.rounds("t", item.planes + more, unrolled=False) as t:
            if not streams.by_part:
                with k.rounds("s", steps, unrolled=False) as s, self._each_part() as m:
                    self._stage(item, t, m, s)
                return
            with (
                self._each_part() as m,
                k.when(self._is_left(item, t, m), is_rest=True, ends=True),
                k.rounds("s", steps, unrolled=False) as s,
            ):
                self._stage(item, t, m, s)

    @contextmanager
    def _each_part(self) -> Iterator[Index]:
        """Of one alone no loop."""
        if (count := len(self.streams.parts)) == 1:
            yield ZERO
            return
        with self.k.rounds("m", Number(count), unrolled=False) as m:
            yield m

    def _is_left(self, item: Item, t: Index, m: Index) -> Condition:
        """Whether the item is not done before part m."""
        over = is_over(self.streams, item, t, m)
        if not over:
            return ()
        done = Variable("done", "bool")
        self.k.add(ir.Let(done, Holds(over)))
        return (Compare("==", done, ZERO),)

    def _stage(self, item: Item, t: Index, m: Index, s: Index) -> None:
        k, frame = self.k, self.frame
        with k.fill(frame.ring):
            if self.ahead:
                k.add(ir.Advance(self.ahead))
            self.reading.begin(item, s, depth(self.streams, item, t, m) if self.streams.is_walked else None)
            if self.turns == 1:
                self._turn(item, m, s, self.thread, ())
                return
            with k.loop("turn", ZERO, Number(self.turns), type="int") as turn:
                first = self.thread + turn * (self.together * self.lanes)
                self._turn(item, m, s, first, (Compare("==", turn, ZERO),))

    def _turn(self, item: Item, m: Index, s: Index, first: Index, who: Condition) -> None:
        """What is loaded is not touched before the stage is waited for: so nvcc leaves all loads in a row (36 of 40 of
        P38's input gradient). Where they were rounded at once, the 24th waited for the 16th and so on."""
        k, frame, reading = self.k, self.frame, self.reading
        guarded = self.together * self.turns * self.lanes > reading.count
        reading.hold(Number(self.together))
        with k.unrolled("k", Number(self.together)) as round_:
            reading.load(item, round_, first + round_ * self.lanes, s, guarded=guarded)
        of_weights = self._scale_of_weights(m, s) if self.streams.scaled else None
        k.add(ir.Vacant(frame.ring))
        self._carry(m, s, who)
        if of_weights and isinstance(reading, Positions):
            reading.scale = self._scale(reading, of_weights)
        with k.unrolled("k", Number(self.together)) as round_:
            reading.store(round_, first + round_ * self.lanes, guarded=guarded)

    def _scale_of_weights(self, m: Index, s: Index) -> ir.Element:
        """Of a stage's, which the first thread has."""
        streams, packed = self.streams, self.frame.packed
        behind = streams.channel_tiles * streams.packed_units * WORDS
        at = behind + self.frame.part * streams.stages + m * streams.steps + s
        found = ir.Element(ir.Fragment("of_weights", "word"))
        self.k.add(ir.Load(found, ir.Global(packed, at), (Compare("==", self.thread, ZERO),), declares=True))
        return found

    def _scale(self, reading: Positions, of_weights: ir.Element) -> ir.Element:
        """Of what is held; the first thread leaves what undoes both."""
        k, frame = self.k, self.frame
        largest, scale, weight, factor = (
            ir.Element(ir.Fragment(name, "float32")) for name in ("largest", "scale", "weight_scale", "factor")
        )
        k.add(ir.Declare((largest.of,), "sum"))
        with k.unrolled("k", Number(self.together)) as round_:
            reading.largest(largest, round_)
        k.add(ir.Scale(scale, largest, frame.scales, self.thread, self.lanes))
        with k.when((Compare("==", self.thread, ZERO),)):
            both = (constant(1.0) / tensor("scale") / tensor("weight_scale")).minimum(constant(MOST))  # 0 stays 0
            inputs = (("scale", scale), ("weight_scale", weight))
            k.add(ir.Convert(weight, of_weights, declares=True), ir.Chain(((factor, both),), inputs))
            k.add(ir.Store(factor, frame.factor))
        return scale

    def _carry(self, m: Index, s: Index, who: Condition) -> None:
        streams = self.streams
        units = of_part([streams.weight_units(part) for part in streams.parts], m)
        begin = of_part(streams.begins, m) + s * units
        source = ir.Global(self.packed, begin * WORDS)
        to = ir.InShared(self.frame.weights, (ZERO, ZERO))
        self.k.add(ir.Carry(self.frame.ring, to, source, units * WORDS, self.thread, who))
