"""What is left of windows whose elements come one after another, in registers of the lanes that make them."""

from __future__ import annotations

from collections.abc import Mapping

from crucible.algebra.convolution.choosing import END_WORDS
from crucible.algebra.convolution.fused import LEAF, PRODUCT
from crucible.algebra.convolution.running import KEPT
from crucible.algebra.expression import Expr, name_of, substitute, tensor
from crucible.algebra.simplify import simplify
from crucible.algebra.sinking import LARGEST, SMALLEST
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Index, Number
from crucible.kinds.convolution.pooled.frame import PooledFrame
from crucible.kinds.convolution.pooled.turning import Turning
from crucible.kinds.convolution.vectors import Values, value
from crucible.kinds.values import inputs_of


class Windows:
    """Those of a lane, while they are made: [its channels][windows of one]."""

    def __init__(self, frame: PooledFrame, k: Builder, turning: Turning) -> None:
        self.frame, self.k, self.running, self.turning = frame, k, frame.running, turning
        walks = frame.walks
        self.shape = Number(walks.channels_a_lane), Number(walks.columns_of_b // 4)
        self.values: dict[str, ir.Fragment] = {}
        """What operands hold for each of a lane's channels."""

    # values of channels

    def of_channel(self, i: Index) -> Values:
        """What operands hold, and what its products come multiplied by."""
        found = {name: value(f"{name}_value") for name in self.values}
        for name, each in self.values.items():
            self.k.add(ir.Convert(found[name], ir.Element(each, (i,)), declares=True))
        self.toward = None
        if self.turning.toward:
            self.toward = value("toward")
            self.k.add(ir.Convert(self.toward, ir.Element(self.turning.toward, (i,)), declares=True))
        return found

    # windows

    def begin(self) -> None:
        """None of whose elements have come."""
        self.states = {each.word: ir.Fragment(each.word, each.dtype, self.shape) for each in self.running.states}
        for each in self.running.states:
            self.k.add(ir.Declare((self.states[each.word],), each.start))

    def take(self, sums: ir.Fragment, own: Index) -> None:
        """What products of a pass `own` make of them."""
        k, decided = self.k, self.turning.decided
        straight, compared = list[ir.Node](), list[ir.Node]()
        with k.apart(straight):
            self._take(sums, own, is_decided=True)
        if not decided:
            k.add(*straight)
            return
        with k.apart(compared):
            self._take(sums, own, is_decided=False)
        k.add(ir.If(decided, tuple(straight), otherwise=tuple(compared)))

    def _take(self, sums: ir.Fragment, own: Index, *, is_decided: bool) -> None:
        k, walks, (channels, windows) = self.k, self.frame.walks, self.shape
        numbered = self.running.is_numbered or not is_decided
        with k.unrolled("i", channels) as i:
            known = self.of_channel(i)
            with k.unrolled("v", windows) as v, k.unrolled("e", Number(walks.elements)) as e:
                product, row = value("product"), e * 2 if walks.pairs else i * 2
                k.add(ir.Convert(product, ir.Element(sums, (v // 2 * 4 + row + v % 2,)), declares=True))
                number = k.named("number", own * walks.elements + e) if numbered else ZERO
                (self._one if is_decided else self._compared)(product, number, (i, v), known)

    def _one(self, product: ir.Element, number: Index, at: tuple[Index, Index], known: Values) -> None:
        """One more product. Where there is a direction, it is that of the channel."""
        k, running = self.k, self.running
        states = {word: ir.Element(each, at) for word, each in self.states.items()}
        if running.pool.kind == "avg":
            k.add(ir.Accumulate("sum", states["total"], product))
        elif running.direction and not running.keeps:
            k.add(ir.Accumulate("max", states["best"], product))
        elif running.ends and not running.direction:
            k.add(*(ir.Accumulate(each.start, states[each.word], product) for each in running.states))
        elif running.direction:
            becomes = ((states["best"], product), (states["chosen"], number))
            k.add(ir.Take(product, states["best"], number, becomes, in_sums=True))
        else:
            new = self._computed({"value": running.pool.before}, {**known, PRODUCT: product})["value"]
            kept: tuple[tuple[ir.Element, ir.Element | Index], ...] = ((states["best"], new), (states["kept"], product))
            kept += ((states["chosen"], number),) if running.keeps else ()
            k.add(ir.Take(new, states["best"], number, kept, in_sums=True))

    def _compared(self, product: ir.Element, number: Index, at: tuple[Index, Index], known: Values) -> None:
        """The same where a channel has no direction: its factor is 0, or a number is not moderate. Values are compared,
        which takes long; `toward` is 1, or -1 where products come turned round."""
        k, before = self.k, self.running.pool.before
        best = ir.Element(self.states["best"], at)
        straight, kept = self._straight("straight", product), self._straight("kept", best)
        exprs = {"value": before, "best_value": substitute(before, {LEAF: KEPT})}
        made = self._computed(exprs, {**known, PRODUCT: straight, name_of(KEPT): kept})
        becomes: tuple[tuple[ir.Element, ir.Element | Index], ...] = ((best, product),)
        becomes += ((ir.Element(self.states["chosen"], at), number),) if self.running.keeps else ()
        k.add(ir.Take(made["value"], made["best_value"], number, becomes))

    def _straight(self, name: str, turned: ir.Element) -> ir.Element:
        """As it is where nothing is turned round."""
        if self.toward is None:
            return turned
        made, factor, given = value(name), tensor("toward"), tensor("turned")
        self.k.add(ir.Chain(((made, factor * given),), (("toward", self.toward), ("turned", turned))))
        return made

    # what is left

    def left(self, at: tuple[Index, Index], product: ir.Element, choice: ir.Element | None, known: Values) -> None:
        """Of one window, when all its elements have come: the product, and perhaps its number."""
        k, running = self.k, self.running
        states = {word: ir.Element(each, at) for word, each in self.states.items()}
        if running.pool.kind == "avg":
            count, of = running.pool.elements, tensor("total")
            mean = value("mean")
            k.add(
                ir.Chain(
                    ((mean, of / count if count & (count - 1) else of * (1 / count)),), (("total", states["total"]),)
                )
            )
            k.add(ir.Convert(product, mean))
        elif running.direction:
            k.add(ir.Convert(product, self._straight("straight", states["best"])))
        elif running.ends:
            self._of_ends(product, {end: states[END_WORDS[end]] for end in running.ends.ends}, known)
        else:
            k.add(ir.Convert(product, states["kept"]))
        if choice:
            k.add(ir.Convert(choice, states["chosen"]))

    def _of_ends(self, product: ir.Element, ends: Mapping[Expr, ir.Element], known: Values) -> None:
        """The smallest where its value is the larger one."""
        k, before = self.k, self.running.pool.before
        first, *_ = ends.values()
        if len(ends) == 1:
            k.add(ir.Convert(product, first))
            return
        exprs = {f"at_{END_WORDS[end]}": substitute(before, {LEAF: end}) for end in ends}
        made = self._computed(exprs, {**known, **{name_of(end): each for end, each in ends.items()}})
        values = {end: made[f"at_{END_WORDS[end]}"] for end in ends}
        k.add(ir.Convert(product, ends[LARGEST]))
        k.add(ir.Take(values[SMALLEST], values[LARGEST], ONE, ((product, ends[SMALLEST]),)))

    def _computed(self, exprs: Mapping[str, Expr], known: Values) -> dict[str, ir.Element]:
        simple = simplify(*exprs.values()).exprs
        made = {name: value(name) for name in exprs}
        results = tuple(zip(made.values(), simple, strict=True))
        self.k.add(ir.Chain(results, inputs_of(simple, known.__getitem__)))
        return made
