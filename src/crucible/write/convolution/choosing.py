"""What is left of a window of products: text that a tail runs over the tile, or over registers before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from crucible.target.cuda import block, unrolled
from crucible.write.convolution.fused import LEAF, PRODUCT, Convolution
from crucible.write.convolution.halo import decoded, times
from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.windows import CHOICE, Windows
from crucible.write.cuda import emit, literal
from crucible.write.expression import Expr, name_of, substitute, tensor
from crucible.write.pool import Pool, Window
from crucible.write.program import Operand, Result, contiguous, reads
from crucible.write.simplify import simplify
from crucible.write.sinking import LARGEST, SMALLEST, Sunk, sink

LOCALS = frozenset({"e", "largest", "smallest", "at_largest", "at_smallest", "best", "taken", "total", "value"})
"""Words of a window's text."""
END_WORDS = {LARGEST: ("largest", "max_nan"), SMALLEST: ("smallest", "min_nan")}
"""Their words, and how they are found."""


@dataclass
class Choosing:
    """Text for one window of a convolution's pool."""

    conv: Convolution
    pool: Windows
    preamble: list[str] = field(default_factory=list)

    @cached_property
    def keeps(self) -> bool:
        """Whether which element is chosen is written."""
        return any(each.expr is CHOICE for each in self.conv.results)

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """What the comparison reads beside the products."""
        if self.pool.kind == "avg" or (self.ends and len(self.ends.ends) == 1):
            return ()
        return tuple(each for each in self.conv.operands if each.name in reads(self.pool.before))

    def note(self) -> str:
        """In words."""
        size = "x".join(map(str, self.pool.sizes))
        if self.pool.kind == "avg":
            return f"Of windows of {size} products their mean is left."
        kept = " and which it is" if self.keeps else ""
        how = f" {self.ends.note}" if self.ends else ""
        return f"Of windows of {size} the product of the largest value is left{kept}.{how}"

    def lines(self, element: Callable[[str], str], product: str, choice: str, names: Mapping[str, str]) -> list[str]:
        """Puts what is left of the products, `element` of their number, into `product`, and the number of the chosen
        one into `choice` if that is kept. `names` are those of what operands hold."""
        if self.pool.kind == "avg":
            return self._mean(element, product)
        if self.ends:
            return self._end(element, product, self.ends, names)
        return self._first_of_largest(element, product, choice, names)

    def of_tile(self, tiling: Tiling, vector: int, names: Mapping[str, str]) -> list[str]:
        """`products`, what is left of each of `vector` neighbouring windows of row r of the tile, the first of them
        number `v * vector` of the box, and `choices`."""
        strides, sizes = contiguous(tiling.output_box), self.pool.sizes
        at = _sum(decoded("v" if vector == 1 else f"(v * {vector})", tiling.made_box), strides, sizes)
        lines = [f"const float* window = tile + r * {tiling.pitch} + {at};"]
        together = vector * sizes[-1]
        if together in (2, 4) and tiling.output_box[-1] % together == 0:
            outer = _sum(decoded("e", sizes[:-1]), strides, [1] * len(sizes)) if len(sizes) > 1 else "0"
            read = f"rows[e] = *reinterpret_cast<const Pack<float, {together}>*>(window + {outer});"
            count = str(self.pool.elements // sizes[-1])
            lines += [f"Pack<float, {together}> rows[{count}];", *unrolled("e", count, [read])]

            def element(e: str) -> str:
                return f"rows[{e} / {sizes[-1]}].at[k * {sizes[-1]} + {e} % {sizes[-1]}]"
        else:

            def element(e: str) -> str:
                return f"window[{_sum(decoded(e, sizes), strides, [1] * len(sizes))} + k * {sizes[-1]}]"

        lines.append(f"Pack<float, {vector}> products;")
        if self.keeps:
            lines.append(f"Pack<int, {vector}> choices;")
        return lines + unrolled("k", str(vector), self.lines(element, "products.at[k]", "choices.at[k]", names))

    @cached_property
    def ends(self) -> Sunk | None:
        """Where the largest or the smallest product gives the largest value; which element it is of several then is
        another matter."""
        if self.keeps:
            return None
        of = self.conv.correlation
        windows = tuple(
            Window(size, size, n, n // size) for size, n in zip(self.pool.sizes, of.out_shape[2:], strict=True)
        )
        product = Operand(PRODUCT, "float32", contiguous(of.out_shape))
        shared = tuple(each for each in self.conv.operands if each.name in reads(self.pool.before))
        left = Result("left", "float32", contiguous(self.conv.made_shape), tensor("pooled"))
        found = sink(Pool("sunk", "max", of.out_shape[:2], windows, (product, *shared), self.pool.before, (), left))
        return found if found.inner is LEAF else None

    def _loop(self, lines: list[str], first: int = 0) -> list[str]:
        return ["#pragma unroll", *block(f"for (int e = {first}; e < {self.pool.elements}; ++e)", lines)]

    def _mean(self, element: Callable[[str], str], product: str) -> list[str]:
        return ["float total = 0;", *self._loop([f"total += {element('e')};"]), f"{product} = {self._mean_of_total};"]

    @property
    def _mean_of_total(self) -> str:
        count = self.pool.elements
        return f"total / {literal(count)}" if count & (count - 1) else f"total * {literal(1 / count)}"

    def _end(self, element: Callable[[str], str], product: str, way: Sunk, names: Mapping[str, str]) -> list[str]:
        """By the ends of a window; where a sign decides between them, the larger of their values does."""
        words = {end: END_WORDS[end][0] for end in way.ends}
        lines = [f"float {word} = {element('0')};" for word in words.values()]
        lines += self._loop([f"{w} = {END_WORDS[end][1]}({w}, {element('e')});" for end, w in words.items()], 1)
        return [*lines, *self._of_ends(product, way, words, names)]

    def _of_ends(self, product: str, way: Sunk, words: Mapping[Expr, str], names: Mapping[str, str]) -> list[str]:
        """Of what was found at the ends, in `words`."""
        self.preamble += emit({"both": LARGEST.maximum(SMALLEST).minimum(LARGEST)}, {}).preamble
        if len(way.ends) == 1:
            return [f"{product} = {words[way.ends[0]]};"]
        values = {f"at_{word}": substitute(self.pool.before, {LEAF: end}) for end, word in words.items()}
        ends = {name_of(end): word for end, word in words.items()}
        lines = self._emitted(values, {**names, **ends})
        taken = "(at_smallest > at_largest) | isnan(at_smallest)"
        return [*lines, f"{product} = {taken} ? smallest : largest;"]

    def _first_of_largest(
        self, element: Callable[[str], str], product: str, choice: str, names: Mapping[str, str]
    ) -> list[str]:
        """PyTorch's choice: the first of the largest, or the last NaN."""
        inner = [f"const float product = {element('e')};"]
        inner += self._emitted({"value": self.pool.before}, {**names, PRODUCT: "product"})
        inner.append("const bool taken = (e == 0) | (value > best) | isnan(value);  // selects: `||` would branch")
        kept = {"best": "value", product: "product"} | ({choice: "e"} if self.keeps else {})
        inner += [f"{word} = taken ? {new} : {word};" for word, new in kept.items()]
        return ["float best = 0;", f"{product} = 0;", *([f"{choice} = 0;"] * self.keeps), *self._loop(inner)]

    def _emitted(self, values: Mapping[str, Expr], names: Mapping[str, str]) -> list[str]:
        simple = simplify(*values.values()).exprs
        found = emit(dict(zip(values, simple, strict=True)), names, reserved=[*LOCALS, *names.values()])
        self.preamble += found.preamble
        return [*found.statements]


def _sum(words: Sequence[str], strides: Sequence[int], factors: Sequence[int]) -> str:
    """Of coordinates in windows or boxes, as a distance."""
    each = zip(words, strides, factors, strict=False)
    terms = [times(f"({word})" if " " in word else word, stride * factor) for word, stride, factor in each]
    return " + ".join(term for term, word in zip(terms, words, strict=True) if word != "0") or "0"
