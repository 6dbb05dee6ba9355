"""What is left of a window whose elements come one after another: text for what is known of it meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from crucible.write.convolution.choosing import END_WORDS, Choosing
from crucible.write.convolution.direction import Direction, direction
from crucible.write.convolution.fused import LEAF, PRODUCT
from crucible.write.cuda import emit
from crucible.write.expression import name_of, substitute, tensor
from crucible.write.text import text

_TAKE = """\
// A window's largest value so far: the first of several, or the last NaN. What is kept with it is selected by sums
// under a condition, x + -0 = x: selections would go through the pipe of the comparisons.
__device__ __forceinline__ void take(float& best, float& kept, {chosen}float value, float product, int number) {{
    asm("{{\\n"
        ".reg .pred first, taken;\\n"
        "setp.eq.s32 first, {number}, 0;\\n"
        "setp.nan.or.f32 first, {value}, {value}, first;\\n"
        "setp.gt.or.f32 taken, {value}, %0, first;\\n"
        "@taken add.f32 %0, {value}, 0f80000000;\\n"
        "@taken add.f32 %1, {product}, 0f80000000;\\n"{choose}
        "}}"
        : "+f"(best), "+f"(kept){output}
        : "f"(value), "f"(product), "r"(number));
}}"""
_PLAIN = {"chosen": "", "value": "%2", "product": "%3", "number": "%4", "choose": "", "output": ""}
_KEEPING = {
    "chosen": "int& chosen, ",
    "value": "%3",
    "product": "%4",
    "number": "%5",
    "choose": '\n        "@taken mov.b32 %2, %5;\\n"',
    "output": ', "+r"(chosen)',
}


_FOLLOW = """\
// The largest of a window so far, or the last NaN, and its number, a float of those bits. Both are selected by sums
// under a condition, as `take` does; a number is 0 times the one before and itself, or the sum would be made once and
// selections of it.
__device__ __forceinline__ void follow(float& best, float& chosen, float product, float number) {
    asm("{\\n"
        ".reg .pred taken;\\n"
        "setp.nan.f32 taken, %2, %2;\\n"
        "setp.gt.or.f32 taken, %2, %0, taken;\\n"
        "@taken add.f32 %0, %2, 0f80000000;\\n"
        "@taken fma.rn.f32 %1, %1, 0f00000000, %3;\\n"
        "}"
        : "+f"(best), "+f"(chosen)
        : "f"(product), "f"(number));
}"""
KEPT = tensor("the product of the largest value so far")


class State(NamedTuple):
    """A variable for each window."""

    word: str
    type: str
    first: str
    """What it begins with."""


@dataclass
class Running(Choosing):
    """Windows known by `states`, which are declared outside."""

    @cached_property
    def direction(self) -> Direction | None:
        """Of the chain, where it spares more than it asks for: products of falling channels have to come turned
        round."""
        if self.pool.kind == "avg" or (self.ends and len(self.ends.ends) == 1):
            return None
        return direction(self.pool.before, self.conv.operands, strict=self.keeps)

    def note(self) -> str:
        """In words."""
        if not self.direction or not self.direction.signs:
            return super().note()
        kept = " and which it is" if self.keeps else ""
        chain = text(substitute(self.pool.before, {LEAF: tensor("u")}))
        return (
            f"Of windows of {'x'.join(map(str, self.pool.sizes))} the product of the largest value is left{kept}."
            f" {chain} only rises or only falls with u, by the sign of a parameter: weights of channels where it falls"
            " are turned round, so that the largest u is followed in all of them."
        )

    @cached_property
    def states(self) -> tuple[State, ...]:
        """What is known of a window."""
        if self.pool.kind == "avg":
            return (State("total", "float", "0.0f"),)
        if self.direction:
            largest = State("best", "float", "-INFINITY")
            return (largest, State("chosen", "float", "0.0f")) if self.keeps else (largest,)
        if self.ends:
            first = {"largest": "-INFINITY", "smallest": "INFINITY"}
            return tuple(State(word, "float", first[word]) for word, _ in map(END_WORDS.__getitem__, self.ends.ends))
        found = (State("best", "float", "0.0f"), State("kept", "float", "0.0f"))
        return (*found, State("chosen", "int", "0")) if self.keeps else found

    @property
    def is_numbered(self) -> bool:
        """Whether `taken` reads elements' numbers."""
        return self.keeps or (len(self.states) > 1 and not self.ends)

    def taken(self, names: Mapping[str, str]) -> list[str]:
        """One more `product`, the element of this `number`; they come in order. Where there is a direction, it is that
        of the channel."""
        if self.pool.kind == "avg":
            return ["total += product;"]
        if self.direction and self.keeps:
            self.preamble.append(_FOLLOW)
            return ["follow(best, chosen, product, __int_as_float(number));"]
        if self.direction:
            self.preamble += emit({"larger": LEAF.maximum(KEPT)}, {}).preamble
            return ["best = max_nan(best, product);"]
        if self.ends:
            return [f"{word} = {step}({word}, product);" for word, step in map(END_WORDS.__getitem__, self.ends.ends)]
        lines = self._emitted({"value": self.pool.before}, {**names, PRODUCT: "product"})
        self.preamble.append(_TAKE.format_map(_KEEPING if self.keeps else _PLAIN))
        return [*lines, f"take({', '.join(each.word for each in self.states)}, value, product, number);"]

    def compared(self, names: Mapping[str, str]) -> list[str]:
        """The same where a channel has no direction: its factor is 0, or a number is not moderate. Values are compared,
        which takes long; `toward` is 1, or -1 where products come turned round."""
        before = self.pool.before
        values = {"value": before, "best_value": substitute(before, {LEAF: KEPT})}
        words = {**names, PRODUCT: "straight", name_of(KEPT): "kept"}
        kept = {"best": "product"} | ({"chosen": "__int_as_float(number)"} if self.keeps else {})
        return [
            "const float straight = toward * product, kept = toward * best;",
            *self._emitted(values, words),
            "const bool taken = (number == 0) | (value > best_value) | isnan(value);",
            *(f"{word} = taken ? {new} : {word};" for word, new in kept.items()),
        ]

    def left(self, product: str, choice: str, names: Mapping[str, str]) -> list[str]:
        """When all have come: as `Choosing.lines`."""
        if self.pool.kind == "avg":
            return [f"{product} = {self._mean_of_total};"]
        if self.direction:
            turn = "toward * " if self.direction.turns else ""
            number = [f"{choice} = __float_as_int(chosen);"] if self.keeps else []
            return [f"{product} = {turn}best;", *number]
        if self.ends:
            words = {end: END_WORDS[end][0] for end in self.ends.ends}
            return self._of_ends(product, self.ends, words, names)
        return [f"{product} = kept;", *([f"{choice} = chosen;"] if self.keeps else [])]
