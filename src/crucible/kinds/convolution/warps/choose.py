"""What is left of a window of products, in registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crucible.algebra.convolution.choosing import END_KINDS, END_WORDS, Choosing
from crucible.algebra.convolution.fused import LEAF, PRODUCT
from crucible.algebra.expression import Expr, name_of, substitute, tensor
from crucible.algebra.simplify import simplify
from crucible.algebra.sinking import LARGEST, Sunk
from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, ZERO, Index, Number, Variable
from crucible.kinds.convolution.warps.frame import Frame
from crucible.kinds.values import inputs_of

Elements = Callable[[Index], ir.Element]
"""A product of the window, by its number."""
Values = Mapping[str, ir.Element]
"""What operands hold for a channel, by name."""


class Choose:
    """The nodes for one window of a convolution's pool."""

    def __init__(self, frame: Frame, choosing: Choosing) -> None:
        self.frame, self.k, self.choosing, self.pool = frame, frame.k, choosing, choosing.pool
        self.keeps = choosing.keeps
        """Whether which element is chosen is written."""

    def of_channel(self, channel: Index) -> dict[str, ir.Element]:
        """What the comparison reads beside the products."""
        found = {each.name: self._value(f"{each.name}_own") for each in self.choosing.operands}
        c = self.k.named("c", channel) if found else ZERO
        for name, value in found.items():
            self.k.add(ir.Load(value, self.frame.of_row(self.frame.operands[name], ZERO, c), declares=True))
        return found

    def choose(self, element: Elements, into: ir.Element, choice: ir.Element, values: Values) -> None:
        """Puts what is left into one register, which holds 0, and the number of the chosen one into another if that is
        kept."""
        if self.pool.kind == "avg":
            self._mean(element, into)
        elif self.choosing.ends:
            self._end(element, into, self.choosing.ends, values)
        else:
            self._first_of_largest(element, into, choice, values)

    def _mean(self, element: Elements, into: ir.Element) -> None:
        k, sum_, mean = self.k, self._value("sum"), self._value("mean")
        k.add(ir.Declare((sum_.of,), "sum"))
        self._each(lambda e: k.add(ir.Accumulate("sum", sum_, element(e))))
        count, of = self.pool.elements, tensor("sum")
        expr = of / count if count & (count - 1) else of * (1 / count)
        k.add(ir.Chain(((mean, expr),), (("sum", sum_),)), ir.Convert(into, mean))

    def _end(self, element: Elements, into: ir.Element, way: Sunk, values: Values) -> None:
        """By the ends of a window; where a sign decides between them, the larger of their values does."""
        k, ends = self.k, {end: self._value(END_WORDS[end]) for end in way.ends}
        for each in ends.values():
            k.add(ir.Declare((each.of,)), ir.Convert(each, element(ZERO)))

        def more(e: Index) -> None:
            for end, each in ends.items():
                k.add(ir.Accumulate(END_KINDS[end], each, element(e)))

        self._each(more, 1)
        first, *rest = ends.values()
        k.add(ir.Convert(into, first))
        if rest:
            self._larger(into, rest[0], {name_of(end): each for end, each in ends.items()} | dict(values), way)

    def _larger(self, into: ir.Element, smallest: ir.Element, values: Values, way: Sunk) -> None:
        """The smallest product where its value is the larger one."""
        k, best, choice = self.k, self._value("best"), ir.Element(ir.Fragment("choice", "int32"))
        exprs = {f"at_{END_WORDS[end]}": substitute(self.pool.before, {LEAF: end}) for end in way.ends}
        at = self._computed(exprs, values)
        largest = at[f"at_{END_WORDS[LARGEST]}"]
        k.add(ir.Declare((best.of,)), ir.Convert(best, largest))
        k.add(ir.Declare((choice.of,)), ir.Value(choice, ZERO, declares=False))
        other = next(each for each in at.values() if each is not largest)
        k.add(ir.Choose(best, choice, other, ONE, ((into, smallest),)))

    def _first_of_largest(self, element: Elements, into: ir.Element, choice: ir.Element, values: Values) -> None:
        """PyTorch's choice: the first of the largest, or the last NaN."""
        k, best, number = self.k, self._value("best"), ir.Element(ir.Fragment("number", "int32"))
        k.add(ir.Declare((best.of,), "sum"), ir.Declare((number.of,), "none"))

        def one(e: Index) -> None:
            product = element(e)
            value = self._computed({"value": self.pool.before}, {**values, PRODUCT: product})["value"]
            k.add(ir.Choose(best, number, value, e, ((into, product),)))

        self._each(one)
        k.add(*([ir.Convert(choice, number)] if self.keeps else []))

    def _computed(self, exprs: Mapping[str, Expr], values: Values) -> dict[str, ir.Element]:
        simple = simplify(*exprs.values()).exprs
        made = {name: self._value(name) for name in exprs}
        results = tuple(zip(made.values(), simple, strict=True))
        self.k.add(ir.Chain(results, inputs_of(simple, values.__getitem__)))
        return made

    def _each(self, do: Callable[[Index], None], first: int = 0) -> None:
        number, body = Variable("e", "int"), list[ir.Node]()
        with self.k.apart(body):
            do(number)
        self.k.add(ir.For(number, Number(first), Number(self.pool.elements), ONE, tuple(body), unrolled=True))

    @staticmethod
    def _value(name: str) -> ir.Element:
        return ir.Element(ir.Fragment(name, "float32"))
