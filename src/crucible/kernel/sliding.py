"""The nodes of windows that slide along a pipeline, and of products of matrices in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from crucible.kernel.index import Condition, Index, Variable
from crucible.kernel.places import Element, Fragment, Global, InShared, Matrix, Pipeline, Shared, Spot

Body: TypeAlias = tuple[Any, ...]
"""Nodes, as `nodes.Body`: that is put together of these as well."""


@dataclass(frozen=True)
class Vacant:
    """Within a `Fill`: up to here threads may do what needs no stage, from here on it is theirs."""

    pipeline: Pipeline


@dataclass(frozen=True)
class Slide:
    """A window slides along the next stages of a pipeline, one a round; each is of one team, in turns.

    A team reads its window while others do what comes behind theirs. What no later window reads may be filled again
    when products are made: the oldest stage, behind the last window all.
    """

    pipeline: Pipeline
    variable: Variable
    """The number of a window."""
    count: Index
    """Windows."""
    before: Body
    """What a team does before its stages are there."""
    products: Body
    """What it makes of them, by tensor cores; the next team's products follow when the last of these is on its way."""
    behind: Body
    """What becomes of that, when the window has gone on."""
    task: Variable | None = None
    """The number of a window's task, where it has such: then teams take turns from task to task, each with a window of
    its own, and `before`, `products` and `behind` are of a task."""
    tasks: int = 1
    begin: Body = ()
    """What a team does before it asks for a window of several tasks."""
    end: Body = ()
    """And behind the last of them."""


@dataclass(frozen=True)
class Provide:
    """What this thread stored of some arrays is there for tensor cores. Once in a kernel, by all who read a pipeline;
    until `Provided` each goes on with what needs none of it."""

    pipeline: Pipeline
    tiles: tuple[Shared, ...]


@dataclass(frozen=True)
class Provided:
    """What all others stored is there too."""

    pipeline: Pipeline


@dataclass(frozen=True)
class Deal:
    """A window slides along the next stages of a pipeline, one a round; each is of all teams, who are dealt its tasks
    one by one, from another team on each time.

    What no later window reads may be filled again when the last of a team's products are made.
    """

    pipeline: Pipeline
    variable: Variable
    """The number of a window."""
    count: Index
    """Windows."""
    task: Variable
    """The number of a window's task."""
    tasks: int
    """Of a window."""
    moved: int
    """By how much the number of a team's first task moves on, modulo teams, from a window to the next."""
    before: Body
    """What a team does for a task before it asks for the window."""
    products: Body
    """What it makes of that, by tensor cores."""
    behind: Body
    """What becomes of that."""


@dataclass(frozen=True)
class Copy:
    """Sixteen bytes as they are, from memory to memory."""

    to: Spot
    source: Spot


@dataclass(frozen=True)
class Bring:
    """Bulk copies into arrays of a warp, beside what its threads do: each lane that comes asks for its own, of so many
    elements. Until `Brought` nobody touches what they go to. A warp is brought things once a window of its team."""

    pipeline: Pipeline
    copies: tuple[tuple[InShared, Global], ...]
    count: Index
    """Of each; whole sixteens of bytes."""
    who: Condition
    lanes: Index
    """For how many of a warp it holds."""


@dataclass(frozen=True)
class Brought:
    """All that a warp was brought is there."""

    pipeline: Pipeline


@dataclass(frozen=True)
class Describe:
    """A matrix begins at a unit of sixteen bytes of an array; of a pipeline's in the stage so much behind the oldest of
    the window."""

    matrix: Matrix
    at: Index
    behind: int | Index = 0


@dataclass(frozen=True)
class Products:
    """A warpgroup multiplies: all products of the body go to the tensor cores, and are waited for."""

    into: Fragment
    """[column / 8][2 rows][2 columns] of a thread; several such perhaps."""
    body: Body
    waits: Literal["each", "all", "later"] = "each"
    """For several sums one by one, or for all of them at once: nvcc 13.0 makes other code of it. Or they are on their
    way until the next batch of the same sums is waited for, and who goes on does not touch what they are made of."""
    settles: bool = False
    """Whether sums that were written are there before: nvcc 13.0 else writes them among the products, and runs one
    product after the other (C7511)."""


@dataclass(frozen=True)
class Product:
    """64 rows by the columns that sums are of, 32 bytes of K: each matrix is moved on by so many sixteens of bytes. A
    thread may hold what `mma.sync` has of the rows: four words."""

    into: Element
    """All sums of a thread, or some of several."""
    rows: tuple[Matrix, int] | Element
    columns: tuple[Matrix, int]
    adds: Condition | None = ()
    """Where the sums that were there are added to; nowhere if there is none."""
    or_where: Condition = ()
    """Where they are as well, if there is more to it."""
    sums: int = 0
    """So many that it makes, the first ones; all where that is 0."""

    @property
    def made(self) -> int:
        """Sums of a thread."""
        return self.sums or self.into.vector
