"""A warpgroup that stages planes of input: where its registers suffice, the next plane is asked for before the stage of
the one that came is waited for: else all that time, and that of its stores, was added to the time in which it comes."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Index, Number
from crucible.kinds.convolution.walks.frame import Item
from crucible.kinds.convolution.walks.produce import Producing
from crucible.schedule.convolution.warpgroup.walks import THREADS


class Staging(Producing):
    """Its body while it is made."""

    def _planes(self, item: Item, origin: ir.Pointer, count: Index) -> None:
        with self.k.rounds("t", count, unrolled=False) as t:
            self._fill(item, t, origin)

    def _inside(self, at: Index, extent: int) -> Condition:
        """As one test: of two, nvcc 13.0 makes other code."""
        return (Compare("in", at, Number(extent)),)


class AskingAhead(Staging):
    """The same, a plane ahead."""

    def _planes(self, item: Item, origin: ir.Pointer, count: Index) -> None:
        """In a round a plane that came, and the next one; the first has only that."""
        k, frame = self.k, self.frame
        self.rounds = Number(self.together)
        shape = (self.rounds, self.units, Number(frame.unit))
        self.asked, self.words = ir.Fragment("asked", "float32", shape), ir.Fragment("words", frame.dtype, shape, True)
        k.add(ir.Declare((self.asked,)))
        with k.loop("t", Number(-1), count, type="int") as t:
            k.add(ir.Declare((self.words,)))
            came = (Compare(">=", t, ZERO),)
            with k.when(came):
                self._convert()
            plane = self._plane(item, t + ONE)
            with k.when((Compare("<", t + ONE, count),)):
                self._ask(item, plane, origin)
            with k.when(came), k.fill(frame.ring), k.unrolled("k", self.rounds) as round_:
                p = self._position(round_)
                with k.when(self._is_there(p)), k.unrolled("u", self.units) as u:
                    self._store(ir.Element(self.words, (round_, u)), u, p)

    def _position(self, round_: Index) -> Index:
        at = self.thread + round_ * THREADS
        return at if at is self.thread else self.k.let("p", at, "int")

    def _convert(self) -> None:
        k = self.k
        with k.unrolled("k", self.rounds) as round_, k.unrolled("u", self.units) as u:
            word = ir.Fragment("word", self.words.dtype, self.words.shape[-1:], True)
            k.add(ir.Declare((word,)))
            for number in map(Number, range(self.frame.unit)):
                k.add(ir.Convert(ir.Element(word, (number,)), ir.Element(self.asked, (round_, u, number))))
            k.add(ir.Convert(ir.Element(self.words, (round_, u)), ir.Element(word)))

    def _ask(self, item: Item, plane: Index, origin: ir.Pointer) -> None:
        k = self.k
        with k.unrolled("k", self.rounds) as round_:
            read = self._reads(item, plane, origin, self._position(round_))
            with k.unrolled("u", self.units) as u:
                for number in map(Number, range(self.frame.unit)):
                    k.add(ir.Load(ir.Element(self.asked, (round_, u, number)), *read(u, number)))
