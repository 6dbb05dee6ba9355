"""Nodes of windows whose elements come one after another, and of what lanes tell each other of them."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.kernel.index import Condition, Index
from crucible.kernel.places import Element


@dataclass(frozen=True)
class Take:
    """One more element of a window: taken where it is the first one, or `value` is larger than `best`, or NaN."""

    value: Element
    best: Element
    """The value of what was taken before."""
    number: Index
    """Of the element: they come in order, and the first is 0."""
    becomes: tuple[tuple[Element, Element | Index], ...]
    """Registers that change with it, and what they become."""
    in_sums: bool = False
    """Whether these are selected by sums under a condition, x + -0 = x: selections would go through the pipe of the
    comparisons. `best` becomes the value; then there may be something kept with it, and the number. Where nothing is
    kept, they begin with -infinity and 0."""


SIGNS = {"tf32": 0x80000000, "halves": 0x80008000}
"""Bits of a word that are signs of what it holds."""


@dataclass(frozen=True)
class Flip:
    """A word with the signs of what it holds turned round, as -1 times that would be, where `signs` are their bits;
    elsewhere these are 0."""

    into: Element
    value: Element
    signs: Element


@dataclass(frozen=True)
class Vote:
    """Whether a condition holds for all lanes of a warp."""

    into: Element
    """A bool, which begins here."""
    condition: Condition


@dataclass(frozen=True)
class Exchange:
    """Of four lanes side by side, each with two bytes of each of four tiles, a lane gets the eight bytes of the tile
    of its own number."""

    into: Element
    """A pack, which begins here."""
    values: Element
    """[tile], `bytes`."""
