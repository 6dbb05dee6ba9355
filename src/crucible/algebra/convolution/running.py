"""What is left of a window whose elements come one after another, and what is known of it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from crucible.algebra.convolution.choosing import END_KINDS, END_WORDS, Choosing
from crucible.algebra.convolution.direction import Direction, direction
from crucible.algebra.convolution.fused import LEAF
from crucible.algebra.expression import substitute, tensor
from crucible.algebra.text import text

KEPT = tensor("the product of the largest value so far")


class State(NamedTuple):
    """A number for each window."""

    word: str
    dtype: str
    start: str
    """What it begins with, as what is added up, or compared, does."""


@dataclass
class Running(Choosing):
    """Windows known by `states`."""

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
            return (State("total", "float32", "sum"),)
        if self.direction:
            return (State("best", "float32", "max"), *((State("chosen", "number", "sum"),) if self.keeps else ()))
        if self.ends:
            return tuple(State(END_WORDS[each], "float32", END_KINDS[each]) for each in self.ends.ends)
        chosen = (State("chosen", "int32", "sum"),) if self.keeps else ()
        return (State("best", "float32", "sum"), State("kept", "float32", "sum"), *chosen)

    @property
    def is_numbered(self) -> bool:
        """Whether it asks for elements' numbers."""
        return self.keeps or (len(self.states) > 1 and not self.ends)
