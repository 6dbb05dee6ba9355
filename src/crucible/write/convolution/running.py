"""What is left of a window whose elements come one after another: text for what is known of it meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from crucible.write.convolution.choosing import END_WORDS, Choosing
from crucible.write.convolution.fused import PRODUCT

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
    def states(self) -> tuple[State, ...]:
        """What is known of a window."""
        if self.pool.kind == "avg":
            return (State("total", "float", "0.0f"),)
        if self.ends:
            first = {"largest": "-INFINITY", "smallest": "INFINITY"}
            return tuple(State(word, "float", first[word]) for word, _ in map(END_WORDS.__getitem__, self.ends.ends))
        found = (State("best", "float", "0.0f"), State("kept", "float", "0.0f"))
        return (*found, State("chosen", "int", "0")) if self.keeps else found

    def taken(self, names: Mapping[str, str]) -> list[str]:
        """One more `product`, the element of this `number`; they come in order."""
        if self.pool.kind == "avg":
            return ["total += product;"]
        if self.ends:
            return [f"{word} = {step}({word}, product);" for word, step in map(END_WORDS.__getitem__, self.ends.ends)]
        lines = self._emitted({"value": self.pool.before}, {**names, PRODUCT: "product"})
        self.preamble.append(_TAKE.format_map(_KEEPING if self.keeps else _PLAIN))
        return [*lines, f"take({', '.join(each.word for each in self.states)}, value, product, number);"]

    def left(self, product: str, choice: str, names: Mapping[str, str]) -> list[str]:
        """When all have come: as `Choosing.lines`."""
        if self.pool.kind == "avg":
            return [f"{product} = {self._mean_of_total};"]
        if self.ends:
            words = {end: END_WORDS[end][0] for end in self.ends.ends}
            return self._of_ends(product, self.ends, words, names)
        return [f"{product} = kept;", *([f"{choice} = chosen;"] if self.keeps else [])]
