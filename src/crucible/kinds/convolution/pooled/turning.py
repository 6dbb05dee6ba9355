"""Channels where a chain falls with its product: their weights are turned round, and the largest is followed in all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crucible.algebra.expression import Expr
from crucible.algebra.program import reads
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Condition, Either, Index, Number, Range
from crucible.kernel.window_nodes import SIGNS
from crucible.kinds.convolution.pooled.frame import PooledFrame
from crucible.kinds.convolution.vectors import Values, value
from crucible.kinds.values import inputs_of


class Turning:
    """What is known of it while a kernel is made."""

    def __init__(self, frame: PooledFrame, k: Builder) -> None:
        self.frame, self.k, self.way = frame, k, frame.running.direction
        self.turns = self.way is not None and self.way.turns
        """Whether there are such channels."""
        self.decides = self.way is not None and bool(self.way.of)
        """Whether a channel may have no direction."""
        read = frozenset[str]().union(*map(reads, self.way.signs)) if self.turns and self.way else frozenset[str]()
        self.deciding = [name for name in frame.of_rows if name in read]
        """What signs are read from."""
        asked = {each.name for each in self.way.of} | set(self.deciding) if self.way else set()
        self.asked = [name for name in frame.of_rows if name in asked]
        """What directions are read from."""
        self.toward: ir.Fragment | None = None
        """What a channel's products come multiplied by, if not by 1."""
        self.decided: Condition = ()
        """That all channels of the warp have a direction."""

    # of weights

    def ask(self, count: int, channel: Callable[[Index], Index]) -> None:
        """Of each channel whose weights a thread puts in order."""
        k = self.k
        self.made = {name: ir.Fragment(f"{name}_made", "float32", (Number(count),)) for name in self.deciding}
        for name, each in self.made.items():
            k.add(ir.Declare((each,)))
            with k.unrolled("m", Number(count)) as m:
                k.add(ir.Load(ir.Element(each, (m,)), self.frame.of_row(name, channel(m))))

    def of_channels(self, count: int) -> None:
        """The bits of their weights that are turned round."""
        if not self.turns or self.way is None:
            return
        k, self.signs = self.k, ir.Fragment("turned", "word", (Number(count),))
        bits = Number(SIGNS[ir.HELD[self.frame.conv.math]])
        k.add(ir.Declare((self.signs,)))
        with k.unrolled("m", Number(count)) as m:
            turned: Index = bits
            if self.way.signs:
                falls = ir.Element(ir.Fragment("falls", "bool"))
                self._compute(((falls, self.way.falling),), self._of(self.made, m))
                turned = Either(_is(falls), bits, ZERO)
            k.add(ir.Value(ir.Element(self.signs, (m,)), turned, declares=False))

    def of_weight(self, m: Index) -> ir.Element | None:
        """Of one of them."""
        return ir.Element(self.signs, (m,)) if self.turns else None

    # of products

    def begin(self, values: Mapping[str, ir.Fragment], count: Index) -> None:
        """Of each channel what its products come multiplied by; and whether all channels of the warp have a direction,
        so that lanes stay together."""
        if self.way is None or not (self.turns or self.decides):
            return
        k, is_decided = self.k, ir.Element(ir.Fragment("is_decided", "bool"))
        self.toward = ir.Fragment("turning", "float32", (count,))
        k.add(ir.Declare((self.toward,)), *([ir.Declare((is_decided.of,), "all")] if self.decides else []))
        with k.unrolled("i", count) as i:
            toward, decides = value("toward"), ir.Element(ir.Fragment("decides", "bool"))
            results = ((toward, self.way.toward), *(((decides, self.way.moderate),) if self.decides else ()))
            self._compute(results, self._of(values, i))
            k.add(ir.Convert(ir.Element(self.toward, (i,)), toward))
            k.add(*([ir.Accumulate("all", is_decided, decides)] if self.decides else []))
        if self.decides:
            decided = ir.Element(ir.Fragment("decided", "bool"))
            k.add(ir.Vote(decided, _is(is_decided)))
            self.decided = _is(decided)

    def _of(self, fragments: Mapping[str, ir.Fragment], i: Index) -> Values:
        """Of one channel."""
        found = {name: value(f"{name}_value") for name in fragments}
        for name, each in fragments.items():
            self.k.add(ir.Convert(found[name], ir.Element(each, (i,)), declares=True))
        return found

    def _compute(self, results: tuple[tuple[ir.Element, Expr], ...], known: Values) -> None:
        self.k.add(ir.Chain(results, inputs_of((expr for _, expr in results), known.__getitem__)))


def _is(flag: ir.Element) -> Condition:
    return (Compare("!=", ir.Held(Range(0, 1), flag), ZERO),)
