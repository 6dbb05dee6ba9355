"""The nodes of numbers that are moved into fp16's range by a power of two, which all of a stage share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crucible.kernel.index import Index
from crucible.kernel.places import Element, Shared


@dataclass(frozen=True)
class Largest:
    """The largest magnitude of words of float32 as well; what is not finite does not count."""

    into: Element
    """A float32, 0 at first."""
    value: Element
    """A pack of words."""


@dataclass(frozen=True)
class Scale:
    """The power of two by which the largest of what so many threads found becomes 2^14 and more, below 2^15: then all
    that was finite is in fp16's range, and an eleven bits smaller rest as well. At most 2^126, whose inverse is normal.

    All threads of a role come, or of a block without roles, and wait for each other; what one of them finds a warp
    leaves in `scratch`, which is theirs alone until the next time."""

    into: Element
    """A float32, which begins here."""
    largest: Element
    scratch: Shared
    """Numbers of float32, the first of which warps write."""
    thread: Index
    """Counted from 0."""
    threads: int


@dataclass(frozen=True)
class SplitScaled:
    """Of a pack of words times a scale, in fp16, two to a word: the nearest to each, or to what that leaves of it. Both
    together have 22 bits."""

    into: Element
    """A pack of `halves`, half as many, which begins here."""
    value: Element
    scale: Element
    part: Literal["high", "low"]
