"""What is left of a window whose elements come one after another: text for what is known of it meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from crucible.write.convolution.choosing import END_WORDS, Choosing
from crucible.write.convolution.fused import PRODUCT


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
        lines.append("const bool taken = (number == 0) | (value > best) | isnan(value);  // selects: `||` would branch")
        news = {"best": "value", "kept": "product", "chosen": "number"}
        return [*lines, *(f"{each.word} = taken ? {news[each.word]} : {each.word};" for each in self.states)]

    def left(self, product: str, choice: str, names: Mapping[str, str]) -> list[str]:
        """When all have come: as `Choosing.lines`."""
        if self.pool.kind == "avg":
            return [f"{product} = {self._mean_of_total};"]
        if self.ends:
            words = {end: END_WORDS[end][0] for end in self.ends.ends}
            return self._of_ends(product, self.ends, words, names)
        return [f"{product} = kept;", *([f"{choice} = chosen;"] if self.keeps else [])]
