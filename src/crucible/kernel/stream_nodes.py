"""The nodes of stages that a bulk copy brings a part of, and of sums that move on from plane to plane."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.kernel.index import Condition, Index
from crucible.kernel.places import Element, Global, InShared, Pipeline


@dataclass(frozen=True)
class Carry:
    """Within a `Fill`, once: one of those who fill a stage asks for a bulk copy of so many elements to an array of it.
    The stage is not full before that is there."""

    pipeline: Pipeline
    to: InShared
    source: Global
    elements: Index
    """Of the source; whole sixteens of bytes."""
    thread: Index
    """The number of a thread among those who fill: the first one asks."""
    who: Condition = ()
    """In which of its rounds, where a stage is filled in several."""


@dataclass(frozen=True)
class MoveOn:
    """Sums that a thread has move on by so many places, and the first of them are 0. What moves on beyond the last
    place is gone."""

    sums: Element
    """All of a fragment, or some of several."""
    by: int
