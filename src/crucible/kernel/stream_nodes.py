"""The nodes of stages that a bulk copy brings a part of, of rows that are asked for ahead, and of sums that move on
from plane to plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from crucible.kernel.index import Condition, Index, Variable
from crucible.kernel.places import Element, Global, InShared, Pipeline

Body: TypeAlias = tuple[Any, ...]
"""Nodes, as `nodes.Body`: that is put together of these as well."""


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


@dataclass(frozen=True)
class Level:
    """A loop of a `Walk`, from 0 on."""

    variable: Variable
    count: Index
    ends: Condition = ()
    """Where it is over before that, if anywhere."""


@dataclass(frozen=True, eq=False)
class Walk:
    """The rounds of loops one by one: of items, and within each of some more, the outer ones first."""

    name: str
    item: Variable
    first: Index
    items: Index
    """Up to before which."""
    by: Index
    placed: tuple[Any, ...]
    """Variables of an item, each a `Let`."""
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Ahead:
    """What threads do for the next round of loops, at each `Advance`; here they are at the first one."""

    walk: Walk
    body: Body


@dataclass(frozen=True)
class Advance:
    """One round on; what is said for that is done, if there is one."""

    walk: Walk


@dataclass(frozen=True)
class Prefetch:
    """A thread asks for so many elements to come to the L2 cache, for loads to come; whole sixteens of bytes."""

    source: Global
    elements: Index
    by_line: bool = False
    """Whether it is one line of 128 bytes, which has an instruction of its own: where each of 128 threads asked for one
    in bulk, a product took 1.60 ms for 1.04 (H100)."""
