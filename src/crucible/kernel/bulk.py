"""The nodes of stages that bulk copies fill, and of warpgroups that have turns at memory of all of them."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.kernel.index import Condition, Index, Variable
from crucible.kernel.places import Element, Fragment, Global, InShared, Pipeline
from crucible.kernel.sliding import Body


@dataclass(frozen=True)
class Send:
    """Within a `Fill`: all bulk copies to its stage, each lane's own. Text goes over the body twice, as a warp says how
    many bytes come before any of them can."""

    pipeline: Pipeline
    body: Body


@dataclass(frozen=True)
class Stretch:
    """A copy of a `Send`: so many elements that lie one behind the other, and what lies in the same sixteens of bytes
    as the first and the last. The first is as far behind `to` as behind the begin of its sixteen."""

    to: InShared
    source: Global
    count: Index


@dataclass(frozen=True)
class Leave:
    """Within a `Drain`: who reads a stage does without it from here on."""

    pipeline: Pipeline


@dataclass(frozen=True)
class InTurn:
    """Warpgroups that read a pipeline do something one after the other, the first one first, all as often; who has the
    turn touches what those before touched in theirs."""

    pipeline: Pipeline
    team: Variable
    """The number of a thread's warpgroup."""
    turn: Variable
    """How many a warpgroup had before."""
    before: Body
    """What all do when they have it."""
    body: Body
    """What those do then who have something to do."""
    behind: Body
    """What these do when others have the turn."""
    who: Condition = ()
    """Which warpgroups they are."""


@dataclass(frozen=True)
class Collect:
    """Sums of tensor cores, which were made apart, into others: those in float32 lose nothing as they add."""

    into: Element
    """All sums of a thread, or some of several; the first of them where there are fewer values."""
    value: Fragment
    adds: Condition | None = ()
    """Where they are added to what was there; elsewhere, or nowhere, they take its place."""
    or_where: Condition = ()
    """Where they are as well, if there is more to it."""
    factor: Element | None = None
    """By which they are multiplied first; a float32."""
