"""At which shapes a candidate that fails was tried, and what came of it: records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

At = tuple[tuple[str, int], ...]
"""Sizes by name, those of a batch first."""
WRONG, RIGHT, REFUSED, OTHERWISE = "wrong", "right", "refused", "ended otherwise"


@dataclass(frozen=True)
class Trial:
    """One shape that was tried."""

    at: At
    came: str
    """`wrong` (it fails as it did), `right`, or what tells neither: `refused` (the reference, or the judge, does not
    take this shape), `ended otherwise` (the candidate raises, or fails in another way)."""


@dataclass(frozen=True)
class SmallestFailing:
    """The smallest shape at which a candidate was found to fail."""

    at: At
    words: str
    """How it fails there."""
    first: At
    """The shape of the case that it failed."""
    trials: tuple[Trial, ...]
    """All that were tried, in order."""
    stopped: str = ""
    """What ended the search before its end; empty where nothing did."""

    def came(self, how: str) -> tuple[At, ...]:
        """The shapes of which that came."""
        return tuple(trial.at for trial in self.trials if trial.came == how)


@dataclass(frozen=True)
class NotShrunk:
    """No smallest failing shape, and why."""

    reason: str


NOT_SHRUNK = NotShrunk("only wrong values, and faults on the emulator, are shrunk")


@dataclass(frozen=True)
class Edge:
    """Two shapes next to each other: one fails, one is right."""

    at: At
    """The one that fails."""
    name: str
    """The size in which they differ."""
    right: int
    """Its value where it is right."""

    @property
    def wrong(self) -> int:
        return dict(self.at)[self.name]


def edges(trials: Mapping[At, str], found: At) -> list[Edge]:
    """Where wrong and right meet: at the smallest failing shape if they do, else wherever they were seen to."""
    everywhere = [edge for at, came in trials.items() if came == WRONG for edge in _edges_of(trials, at)]
    return [edge for edge in everywhere if edge.at == found] or everywhere


def changed(at: At, name: str, size: int) -> At:
    """The same shape with another value of one size."""
    return tuple((own, size if own == name else value) for own, value in at)


def _edges_of(trials: Mapping[At, str], at: At) -> list[Edge]:
    beside = [(name, by) for name, size in at for by in (size - 1, size + 1)]
    return [Edge(at, name, by) for name, by in beside if trials.get(changed(at, name, by)) == RIGHT]
