"""A wrong answer under new weights: is it the right one under older weights, and whose fault is that?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from crucible.judge.verdict.verdict import Wrong

MOST_SINGLE = 6
"""Weights that are looked at one by one; the oracle answers once for each."""


@dataclass(frozen=True)
class Unmoved:
    """It was never given some of the new weights, and its answer is right for those that it has."""

    names: tuple[str, ...]


Explains = Callable[[list[str]], bool]
"""Whether the answer is the oracle's where these weights are still as constructed."""


def older_weights(moved: list[str], weights: dict[str, Any], explains: Explains) -> Unmoved | Wrong | None:
    """What a wrong answer with `moved` weights is; None where older weights do not explain it. `weights` is what the
    candidate's process said of its copying."""
    lost = [name for name in moved if name in weights["only_in_reference"]]
    held = [name for name in lost if name in weights["held"]]
    if held and explains(held):
        return Unmoved(tuple(held))
    for names in _suspects(moved, lost):
        if explains(names):
            return Wrong(
                "weights",
                "it keeps a copy of its weights or never reads them: right with the initial ones, and with new "
                f"ones its answer is that of the initial {', '.join(names)}",
            )
    return None


def _suspects(moved: list[str], lost: list[str]) -> Iterator[list[str]]:
    """Sets of weights that may be stale: what was not copied, all, each module's, each, all but one."""
    if lost:
        yield lost
    if moved != lost:
        yield moved
    modules = list(dict.fromkeys(name.rpartition(".")[0] for name in moved))
    if 1 < len(modules) <= MOST_SINGLE:
        groups = ([name for name in moved if name.rpartition(".")[0] == module] for module in modules)
        yield from (group for group in groups if len(group) > 1 and group != lost)
    if 1 < len(moved) <= MOST_SINGLE:
        yield from ([name] for name in moved if [name] != lost)
        yield from ([other for other in moved if other != name] for name in moved if len(moved) > 2)


def uncopied_words(weights: dict[str, Any]) -> str:
    """What a reader of a wrong answer must know of how its weights came to be; "" where all were copied by name."""
    lost = weights["only_in_reference"]
    if lost:
        verb = "was" if len(lost) == 1 else "were"
        left = weights["only_in_candidate"]
        seeded = f"; left as it constructs them: {', '.join(left)}" if left else ""
        return f" ({', '.join(lost)} {verb} not copied: nothing in it corresponds{seeded})"
    return f" (weights were paired: {'; '.join(weights['paired'])})" if weights["paired"] else ""
