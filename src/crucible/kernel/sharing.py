"""The nodes of windows that all teams share step by step, of what they do ahead of a step, and of planes that bulk
copies bring to those who stage them."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.kernel.index import ONE, ZERO, Condition, Index, Variable
from crucible.kernel.places import Global, InShared, Pipeline
from crucible.kernel.sliding import Body


@dataclass(frozen=True)
class Share:
    """A window slides along the next stages of a pipeline, some a round; each is of all teams, who take its tasks in
    turns, from one window to the next, and read it together. Where there is no task, each team does the body once.

    What no later window reads may be filled again when a team is done with its tasks.
    """

    pipeline: Pipeline
    variable: Variable
    """The number of a window."""
    count: Index
    """Windows."""
    body: Body
    task: Variable | None = None
    """The number of a window's task."""
    tasks: Index = ONE


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a thread, one by one: items, an item's windows, and perhaps a window's tasks, which teams take in
    turns."""

    name: str
    item: Variable
    first: Index
    items: Index
    """Up to before which."""
    by: Index
    placed: Body
    """Variables of an item, each a `Let`."""
    window: Variable
    windows: Index
    task: Variable | None = None
    tasks: Index = ONE
    teams: int = 1
    """Of which every task is one's."""
    team: Index = ZERO


@dataclass(frozen=True)
class Foresee:
    """What threads do for a step before they come to it: each `Ask` is for the next one, until there are none."""

    steps: Steps
    body: Body
    who: Condition = ()
    """Whole warps, that do so; the others do nothing."""
    is_all: bool = False
    """Whether they do it here for one step after the other, and nobody asks."""


@dataclass(frozen=True)
class Ask:
    """What was foreseen, for the next step."""

    steps: Steps


@dataclass(frozen=True)
class Fetch:
    """Bulk copies fill the next stage of a pipeline, when those who read it are done with it: a warp asks for so many,
    a lane for every 32nd. Where the guard does not hold there is nothing to be copied, and the stage is full."""

    pipeline: Pipeline
    number: Variable
    """Of a copy."""
    count: Index
    to: InShared
    source: Global
    elements: Index
    """Of each copy; whole sixteens of bytes."""
    guard: Condition
    lane: Index
    """The number of a thread in the warp."""


@dataclass(frozen=True)
class Meet:
    """All who read a pipeline come here when they are done with its last stage, before one goes on; for whom the
    condition holds are done with all, and do not wait."""

    pipeline: Pipeline
    done: Condition = ()
