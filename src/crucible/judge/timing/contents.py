"""Contents: what timed calls run on, each drawn anew, outside of the process that is timed."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from crucible.judge.process.handing import SLOT
from crucible.judge.process.oracle_process import OracleProcess
from crucible.seeds import BITS, derived, draws_of

MOST_CHECKS = 4
"""Calls of a race whose answers the oracle has beforehand; it has fewer where outputs are large."""
OWN = -1
"""In place of a seed: the base case's own values."""
_chance = random.SystemRandom()


@dataclass(frozen=True)
class Placed:
    """What one call runs on."""

    seed: int
    weights: int
    """The case whose weights they are."""
    case: int = -1
    """Whose answer is that call's; -1 where the oracle has none yet."""
    draws: int | None = None
    """What generators are seeded with before it: None for nothing, OWN for what modules are constructed under. A
    process can read it: it is always that of one of those calls on these weights that the oracle has answered, so
    that it tells nobody whether the call is compared."""


@dataclass(frozen=True)
class Contents:
    """What a timed step runs on: the task's own inputs under a seed of its own for each call, on weights that were
    verified."""

    backward: bool
    """Forward+backward, or forward alone."""
    secrets: tuple[int, ...]
    """Seeds of calls that are compared; the judge and the oracle alone know them."""
    answers: tuple[Placed, ...] = ()
    """What the oracle has answered; empty: every call has the base case's own values."""
    weights: tuple[int, ...] = (0,)
    """Cases whose weights take turns; those of the last are timed, the others compared only."""
    inside: bool = False
    """Whether the process draws them itself, by a recipe and the call's seed: what is large."""
    late: bool = False
    """Whether the oracle can answer contents that were chosen afterwards, too."""
    draws: bool = False
    """Whether the reference draws random numbers, from a seed that is set before each call."""

    @property
    def base(self) -> int:
        """The case whose structure they have; only case 0 has cotangents in every run."""
        return 0 if self.backward else 1

    @property
    def checks(self) -> int:
        """Calls of a race that are compared."""
        return max(1, len(self.answers) + self.late)

    def chosen(self, weights: int) -> Placed:
        """For a call whose answer nobody has, and of which nobody knows yet whether it is compared."""
        if not self.answers:
            return Placed(OWN, weights, self.base, OWN if self.draws else None)
        like = _chance.choice(self._answered(weights) or self.answers)
        return Placed(_chance.getrandbits(BITS), weights, draws=like.draws)

    def secret(self, number: int, weights: int) -> Placed:
        """For the compared call of that number; another one each time, for as long as there are."""
        known = self._answered(weights)
        if not known or (self.late and number % self.checks == self.checks - 1):
            return self.chosen(weights)
        return known[number % len(known)]

    def _answered(self, weights: int) -> list[Placed]:
        return [placed for placed in self.answers if placed.weights == weights]

    def known(self, description: dict[str, Any]) -> Contents:
        """With what the oracle says of itself."""
        found = (Placed(*placed) for placed in description["timed"][self.backward])
        answers = tuple(replace(each, draws=draws_of(each.seed)) if description["draws"] else each for each in found)
        weights = tuple(description["weights_of"]) if answers else (0,)
        late = bool(answers) and description["late"]
        of_task = {name: description[name] for name in ("inside", "draws")}
        return replace(self, answers=answers, weights=weights, late=late, **of_task)

    def within(self, judged: list[int]) -> Contents:
        """On the weights of those cases alone, and case 0's."""
        weights = tuple(case for case in self.weights if case == 0 or case in judged)
        answers = tuple(placed for placed in self.answers if placed.weights in weights)
        return replace(self, weights=weights, answers=answers)


def secret_contents(training: bool, seed: int) -> tuple[Contents, ...]:
    """Forward's contents, and in training those of forward+backward, for one run."""
    return tuple(
        Contents(backward, tuple(derived(seed, "timed contents", backward, i) for i in range(MOST_CHECKS)))
        for backward in ((False, True) if training else (False,))
    )


@dataclass(frozen=True)
class TimedSlot:
    """Where timed calls find their contents, as the judge has it."""

    oracle: OracleProcess
    device: str
    limit_s: float
    """For drawing once."""

    @property
    def counts_processors(self) -> bool:
        """Whether processor time is the clock."""
        return self.device == "cpu"

    @contextlib.contextmanager
    def placed(self, placed: Placed) -> Iterator[Mapping[str, int]]:
        """The oracle draws contents; what a process needs to read them, by name, for as long as it takes to hand that
        over. A case's own values have a file."""
        if placed.seed == OWN:
            yield {}
            return
        descriptor = self.oracle.draw(placed.seed, self.limit_s)
        try:
            yield {SLOT: descriptor}
        finally:
            os.close(descriptor)
