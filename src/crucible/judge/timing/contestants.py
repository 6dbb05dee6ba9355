"""Contestants: the baselines that every candidate of a run takes turns with."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crucible.judge.timing.contestant import BaselineLost, ProcessContestant
from crucible.judge.timing.kept import Kept, through_anchor
from crucible.judge.timing.race import Contestant, Pace, Race, Turn, measured, unsure
from crucible.judge.timing.throttling import ClockWatch, doubts
from crucible.judge.timing.undisturbed import undisturbed
from crucible.judge.verdict.evidence import NOT_MEASURED, Clocks, Finding, Measured, NotMeasured, Speedup
from crucible.judge.verdict.verdict import Outcome

SLOWED = {"cuda": 1.1, "cpu": 5.0}
"""A baseline this many times slower beside a candidate than alone was disturbed, or the machine was (a GPU repeats
itself within 1 %; processor time on a busy machine was 3.3 times as long)."""
CANDIDATE = "the candidate"
Discipline = tuple[bool, bool]
"""Which step, and how: (forward+backward?, graph replay?)."""


@dataclass
class Contestants:
    """The baselines that were found right, and how fast they are among themselves."""

    device: str
    pace: Pace
    say: Callable[[str], None] = lambda text: None
    rivals: dict[Discipline, list[ProcessContestant]] = field(default_factory=dict)
    alone_ms: dict[Discipline, dict[str, float]] = field(default_factory=dict)
    """Third quartiles of the baselines' times among themselves."""
    unsure_ms: dict[Discipline, float] = field(default_factory=dict)
    """The least that the judge's own clock leaves unsure of one of them, among themselves."""
    lost: dict[str, Outcome] = field(default_factory=dict)
    """How those ended that failed on the way."""
    kept: Sequence[Kept] = ()
    """Baselines that take no turns, since an earlier run has measured them."""
    queued_s: float = 0.0
    """Waited until nobody else timed on this machine."""
    read_s: float = 0.0
    """Waited until what reads the GPU's clocks had ended."""

    @property
    def waits_s(self) -> dict[str, float]:
        """Seconds that a race waited for others than the candidate: baselines at work, and other runs' races."""
        processes = {id(rival.process): rival.process for rivals in self.rivals.values() for rival in rivals}
        worked = sum(sum(process.stages_s.values()) for process in processes.values())
        return {"baselines": worked, "others' races": self.queued_s, "the clocks' reader": self.read_s}

    def race(self, contestant: ProcessContestant) -> tuple[Measured, list[Finding]]:
        """Times a candidate among the baselines. Raises Ended or Stop when the candidate fails."""
        turns, clocks = self._run([_Candidate(contestant)], contestant)
        record, findings = self._record(contestant, turns, clocks, CANDIDATE)
        best = {name: self._record(contestant, turns, clocks, name)[0].quartiles_ms[0] for name in turns}
        slowed = _disturbed(best, self.alone_ms.get(_discipline(contestant), {}), SLOWED[self.device])
        record = replace(record, speedups=_corrected(record.speedups, slowed))
        return through_anchor(record, self.kept), findings + _told(slowed)

    def meet(self, contestants: Sequence[ProcessContestant]) -> dict[str, tuple[Measured, list[Finding]]]:
        """Times the baselines among themselves, and keeps them for the candidates to come."""
        if not contestants:
            return {}
        turns, clocks = self._run(contestants, contestants[0])
        still = [contestant for contestant in contestants if contestant.name in turns]
        records = {contestant.name: self._record(contestant, turns, clocks, contestant.name) for contestant in still}
        if still:
            found = min(unsure(turns[contestant.name], self.device) for contestant in still)
            self.unsure_ms[_discipline(contestants[0])] = found
        self.rivals[_discipline(contestants[0])] = still
        self.alone_ms[_discipline(contestants[0])] = {n: record.quartiles_ms[1] for n, (record, _) in records.items()}
        return records

    def enter(self, contestants: Mapping[Discipline, ProcessContestant]) -> None:
        """Takes back what was lost, where it had raced before; its time among the others is known from then."""
        for discipline, contestant in contestants.items():
            if contestant.name in self.alone_ms.get(discipline, {}):
                self.rivals[discipline] = [*self.rivals.get(discipline, []), contestant]

    def _run(
        self, first: Sequence[Contestant], contestant: ProcessContestant
    ) -> tuple[dict[str, list[Turn]], Clocks | NotMeasured]:
        """A race of `first` and the rivals at what `contestant` does; a baseline that is lost on the way
        is left out, and the race run again."""
        entrants = [*first, *self.rivals.get(_discipline(contestant), [])]
        while entrants:
            race, asked = Race(entrants, self.pace, random.SystemRandom()), time.monotonic()
            try:
                with undisturbed(self.device, self.say), ClockWatch(self.device) as watch:
                    self.queued_s += time.monotonic() - asked
                    race.run()
                    done = time.monotonic()
                    clocks = watch.stop()
                    self.read_s += time.monotonic() - done
                    return race.turns, clocks
            except BaselineLost as lost:
                self.say(f"baseline lost: {lost}")
                self._drop(lost)
                entrants = [entrant for entrant in entrants if entrant.name != lost.name]
        return {}, NOT_MEASURED

    def _record(
        self, contestant: ProcessContestant, turns: dict[str, list[Turn]], clocks: Clocks | NotMeasured, name: str
    ) -> tuple[Measured, list[Finding]]:
        record, findings = measured(
            name,
            turns,
            device=self.device,
            covers="forward+backward" if contestant.backward else "forward",
            how="graph replay" if contestant.replay else "as called",
            trusted=name != CANDIDATE,
            unsure_ms=self.unsure_ms.get(_discipline(contestant), 0.0),
        )
        return replace(record, clocks=clocks), findings + doubts(clocks)

    def _drop(self, lost: BaselineLost) -> None:
        self.lost[lost.name] = lost.outcome
        for discipline, contestants in self.rivals.items():
            self.rivals[discipline] = [contestant for contestant in contestants if contestant.name != lost.name]


@dataclass(frozen=True)
class _Candidate:
    """A candidate's contestant under a name that no baseline has: its file may be called `eager.py`."""

    contestant: ProcessContestant

    @property
    def name(self) -> str:
        return CANDIDATE

    @property
    def checks(self) -> int:
        return self.contestant.checks

    @property
    def weights(self) -> int:
        return self.contestant.weights

    def turn(self, samples: int, checked: int, weights: int = -1) -> Turn:
        return self.contestant.turn(samples, checked, weights)


def _discipline(contestant: ProcessContestant) -> Discipline:
    return contestant.backward, contestant.replay


def _disturbed(beside: dict[str, float], alone: dict[str, float], most: float) -> dict[str, float]:
    """By which factor each baseline's first quartile beside a candidate is above its third one alone, where that is
    worth a word: launch-bound ones differ by 15 % in their medians from race to race (H200)."""
    factors = {name: beside[name] / ms for name, ms in alone.items() if name in beside}
    return {name: factor for name, factor in factors.items() if factor > most}


def _corrected(speedups: tuple[Speedup, ...], slowed: dict[str, float]) -> tuple[Speedup, ...]:
    """Ratios as they were had the baselines not been slowed: a candidate gains nothing by disturbing them."""
    return tuple(speedup.divided(slowed.get(speedup.baseline, 1.0)) for speedup in speedups)


def _told(slowed: dict[str, float]) -> list[Finding]:
    if not slowed:
        return []
    evidence = ", ".join(f"{name} by {factor - 1:.0%}" for name, factor in slowed.items())
    return [Finding("baselines ran slower beside it than alone; the ratios are by their time alone", evidence)]
