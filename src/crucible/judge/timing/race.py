"""Paired samples: who takes turns, for how long, and whether to believe them.

Contestants (a candidate and the baselines) take short turns in one run, in ABBA order, until the interval of every
ratio is narrow or the time is up. A turn's samples come from the contestant's own process; this module, outside
of it, holds them against its own clock. Nothing here knows processes: a contestant is anything with a `turn`.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from crucible.judge.verdict.evidence import Finding, Measured, Moments, Speedup
from crucible.spread import interval, quartiles, spread_of

WALL_SHARE = 0.2
WALL_MS = {"alone": 0.2, "beside": 0.05}
"""A sample's wall time may exceed its device time by this part of it, or this much: launching, synchronising, and the
flush, all of which a baseline's samples show where there is one."""
HIDDEN_SHARE = 0.5
HIDDEN_MS = {"cuda": 0.25, "cpu": 25.0}
"""What the judge's own clock may see beside what a process reports and a baseline's samples cost: this part of the
reported wall time, this many milliseconds, or what the rivals' samples leave unsure where they are among themselves,
whichever is most. On a CPU the neighbours' work is in it: 7 ms were seen between two honest processes on two busy
cores."""
UNTOLD_SHARE = 0.25
UNTOLD_MS = 2.0
"""The same of processor time, of all processes of a candidate by the kernel's account, beside what it reports; and of
time in which none of them works and none waits for a processor. Neighbours are not in these."""


@dataclass(frozen=True)
class Turn:
    """Some samples in a row, after one untimed call, in milliseconds."""

    device_ms: tuple[float, ...]
    wall_ms: tuple[float, ...]
    outside_ms: tuple[float, ...]
    """From each sample's request to its answer, by the judge's clock: the sample, and putting contents in place."""
    worked_ms: tuple[float, ...] = ()
    """In that time, processor time of all its processes by the kernel's account; empty where none is kept."""
    queued_ms: tuple[float, ...] = ()
    """In that time, what its threads waited for a processor."""


class Contestant(Protocol):
    """Whoever can be timed."""

    @property
    def name(self) -> str: ...

    @property
    def checks(self) -> int:
        """How many of its calls can be compared with known answers."""

    @property
    def weights(self) -> int:
        """How many sets of weights it was verified on; the last is the one that is timed."""

    def turn(self, samples: int, checked: int, weights: int = -1) -> Turn:
        """Takes a turn on that set of weights; sample number `checked` (none when negative) is compared with its
        answer. Where weights are named, the turn does not count, and it is a second call right behind that sample that
        is compared: what skips its work when calls follow each other fast is wrong there."""


@dataclass(frozen=True)
class Pace:
    """When to go on and when to stop."""

    limit_s: float = 5.0
    """For all rounds of one race, warm-up excluded; the fewest rounds are taken all the same."""
    warm_limit_s: float = 3.0
    turn_ms: float = 20.0
    """A turn lasts about this long."""
    turn_s: float = 0.2
    """And no longer than this, contents and messages included."""
    samples: tuple[int, int] = (3, 20)
    """The fewest and the most in a turn."""
    rounds: tuple[int, int] = (8, 40)
    """The fewest and the most; even, so that every order has its mirror image."""
    half_width: float = 0.005
    """Stop when every ratio is known to this share of itself."""
    stable: float = 0.03
    """Warm when two turns in a row agree to this share."""
    warm_turns: tuple[int, int] = (2, 12)

    def within(self, limit_s: float) -> Pace:
        """In other time than usual; 0 is the usual. Turns are as short as lets the fewest rounds fit: of 0.05 s on a
        CPU, where caches are written over for 2.4 ms a sample, they were ten times that, half of a verdict's cost."""
        if not limit_s:
            return self
        share, turn_s = limit_s / self.limit_s, min(self.turn_s, limit_s / self.rounds[0])
        return replace(self, limit_s=limit_s, warm_limit_s=self.warm_limit_s * share, turn_s=turn_s)


GPU_PACE = Pace()
CPU_PACE = Pace(
    limit_s=2.0, warm_limit_s=1.0, turn_ms=10.0, samples=(2, 10), rounds=(6, 20), half_width=0.02, stable=0.1
)


@dataclass
class Race:
    """Turns of all contestants, round by round. The first one is the one judged; the rest are its rivals."""

    contestants: Sequence[Contestant]
    pace: Pace
    chance: random.Random
    """Decides how many calls nobody needs are made, so that no candidate can count on their number."""
    clock: Callable[[], float] = time.monotonic
    turns: dict[str, list[Turn]] = field(default_factory=dict)

    def run(self) -> None:
        """Warms everybody up and takes rounds until enough is known.

        Calls of the first contestant are compared at random places in random rounds, and once more at the very end. It
        cannot tell them from others, nor when the end has come: what it does lazily, it does in one of these too.
        Rounds run on the last weights, which are nobody's initial ones: a gate that begins closed is open there. On the
        others it takes turns that are compared and do not count.
        """
        first = self.contestants[0]
        sizes = {c.name: self._warm(c) for c in self.contestants}
        self.turns = {c.name: [] for c in self.contestants}
        deadline, number, left = self.clock() + self.pace.limit_s, 0, first.checks
        while not self._enough(number, deadline):
            for contestant in self.contestants if number % 4 in (0, 3) else self.contestants[::-1]:
                size = sizes[contestant.name]
                chosen = contestant is first and left > 1 and self.chance.random() < left / self.pace.rounds[0]
                left -= chosen
                place = self.chance.randrange(size) if chosen else -1
                self.turns[contestant.name].append(contestant.turn(size, place))
                if chosen and first.weights > 1 and self.chance.random() < 0.5:
                    first.turn(1, 0, self.chance.randrange(first.weights))
            number += 1
        for i in range(max(left, first.weights)):
            size = self.chance.randrange(1, sizes[first.name] + 1)
            first.turn(size, size - 1, i % first.weights)

    def _warm(self, contestant: Contestant) -> int:
        """Turns until two in a row agree, and a random few more; returns the samples of a turn from then on."""
        pace, previous, extra = self.pace, 0.0, self.chance.randrange(3)
        deadline = self.clock() + pace.warm_limit_s
        for number in range(pace.warm_turns[1]):
            start = self.clock()
            now = statistics.median(contestant.turn(pace.samples[0], -1).device_ms)
            each_s = (self.clock() - start) / (pace.samples[0] + 1)
            steady = number + 1 >= pace.warm_turns[0] and abs(now - previous) <= pace.stable * now
            if steady or self.clock() >= deadline:
                break
            previous = now
        for _ in range(extra):
            contestant.turn(1, -1)
        fits = int(min(pace.turn_ms / max(now, 1e-3), pace.turn_s / max(each_s, 1e-6)))
        return min(max(fits, pace.samples[0]), pace.samples[1])

    def _enough(self, rounds: int, deadline: float) -> bool:
        fewest, most = self.pace.rounds
        if rounds < fewest or rounds % 2:
            return False
        if rounds >= most or self.clock() >= deadline:
            return True
        first, *rivals = (c.name for c in self.contestants)
        pairs = [paired(self.turns[rival], self.turns[first]) for rival in rivals]
        pairs = pairs or [[_typical(t) / _typical(self.turns[first][0]) for t in self.turns[first]]]
        return all(interval(ratios).half_width <= self.pace.half_width for ratios in pairs)


def paired(over: Sequence[Turn], under: Sequence[Turn]) -> list[float]:
    """Ratios of the turns' device times, round by round."""
    return [_typical(a) / _typical(b) for a, b in zip(over, under, strict=True)]


def measured(
    name: str,
    turns: Mapping[str, Sequence[Turn]],
    *,
    device: str,
    covers: str,
    how: str,
    trusted: bool = False,
    unsure_ms: float = 0.0,
) -> tuple[Measured, list[Finding]]:
    """What one contestant's turns say, beside the others', and what there is to doubt.

    A GPU's runtime is by events unless the whole device was busy for longer than its stream: then it is the wall's. A
    CPU's is processor time, and what the process does not tell of it. Where the judge's own clock cannot be reconciled
    with the one that counts, it does itself: held against the innermost, since work that is done now before one clock
    starts, now before another, is mostly in no gap between two of them. Of who is `trusted` neither is asked: beside a
    candidate, what 64 MiB of contents took to be put in place made eager PyTorch six times slower by that clock.
    `unsure_ms` is what the judge's own clock leaves `unsure` of honest ones.
    """
    own = turns[name]
    rivals = {rival: theirs for rival, theirs in turns.items() if rival != name}
    samples, clock, findings = _believed(own, rivals.values(), device)
    if device == "cpu" and not trusted:
        samples, clock, findings = _with_untold(own, rivals.values(), samples, clock, findings)
    if rivals and not trusted:
        bound = max(_median(own, "wall_ms") * HIDDEN_SHARE, HIDDEN_MS[device], unsure_ms)
        samples, clock, findings = _with_hidden(own, rivals.values(), samples, clock, findings, bound)
    others = {rival: _believed(theirs, rivals.values(), device)[0] for rival, theirs in rivals.items()}
    record = Measured(
        median_ms=statistics.median(samples),
        quartiles_ms=quartiles(samples),
        samples=len(samples),
        clock=clock,
        covers=covers,
        how=how,
        wall_ms=_median(own, "wall_ms"),
        speedups=tuple(
            _speedup(rival, _rounds(other, rivals[rival]), _rounds(samples, own)) for rival, other in others.items()
        ),
        moments=Moments(statistics.fmean(samples), statistics.pstdev(samples), min(samples), max(samples)),
    )
    return record, findings


UNTOLD_CLOCKS = ("the kernel's account", "waiting too")


def _with_hidden(
    own: Sequence[Turn],
    rivals: Collection[Sequence[Turn]],
    samples: list[float],
    clock: str,
    findings: list[Finding],
    bound_ms: float,
) -> tuple[list[float], str, list[Finding]]:
    """The samples with what passes beside them by the judge's own clock, where it is so much beyond the rivals'."""
    if clock in UNTOLD_CLOCKS:
        return samples, clock, findings
    inner = "device_ms" if clock == "CUDA events" else "wall_ms"
    hidden, reported = _gap(own, rivals, "outside_ms", inner), _median(own, inner)
    if hidden <= bound_ms:
        return samples, clock, findings
    claim = "more time passes in its turns than it reports; the judge's own clock counts"
    evidence = f"it reports {reported:.3g} ms a call, and {reported + hidden:.3g} ms pass"
    return [reported + hidden for _ in samples], "the judge's own clock", [*findings, Finding(claim, evidence)]


def _with_untold(
    own: Sequence[Turn],
    rivals: Collection[Sequence[Turn]],
    samples: list[float],
    clock: str,
    findings: list[Finding],
) -> tuple[list[float], str, list[Finding]]:
    """The samples with the work and the waiting that the process does not tell of, beyond what the rivals show.

    Work in another process, or by a clock that was tampered with, is in the kernel's account of all its processes. Who
    waits, and not for a processor, waits for something that takes its time: what passes until it goes on counts.
    """
    if not rivals or not all(turn.worked_ms for turns in (own, *rivals) for turn in turns):
        return samples, clock, findings
    told = statistics.median(samples)
    most = max(told * UNTOLD_SHARE, UNTOLD_MS)
    worked = _beyond(own, rivals, _worked_untold)
    waited = _beyond(own, rivals, _waited)
    untold = (worked if worked > most else 0.0) + (waited if waited > most else 0.0)
    if not untold:
        return samples, clock, findings
    if worked > most:
        claim = "its processes work longer than its clock says; the kernel's account counts"
        findings = [*findings, Finding(claim, f"it reports {told:.3g} ms a call, and {worked:.3g} ms more are worked")]
    else:
        claim = "it waits while it is timed; what passes meanwhile counts"
        findings = [Finding(claim, f"{told:.3g} ms of processor time, and {waited:.3g} ms more pass")]
    return [s + untold for s in samples], UNTOLD_CLOCKS[worked <= most], findings


def _worked_untold(turn: Turn) -> list[float]:
    return [worked - told for worked, told in zip(turn.worked_ms, turn.device_ms, strict=True)]


def _waited(turn: Turn) -> list[float]:
    """In which nobody worked and nobody was kept from it."""
    clocks = zip(turn.outside_ms, turn.worked_ms, turn.queued_ms, strict=True)
    return [max(0.0, outside - worked - queued) for outside, worked, queued in clocks]


def _beyond(own: Sequence[Turn], rivals: Collection[Sequence[Turn]], of: Callable[[Turn], list[float]]) -> float:
    """The typical sample's, less the least that is typical of a rival."""
    typical = [statistics.median([one for turn in turns for one in of(turn)]) for turns in (own, *rivals)]
    return float(typical[0] - min(typical[1:]))


def _speedup(rival: str, theirs: Sequence[float], own: Sequence[float]) -> Speedup:
    ratios = [a / max(b, 1e-6) for a, b in zip(theirs, own, strict=True)]
    found = interval(ratios).reported
    return Speedup(rival, found.value, (found.low, found.high), tuple(ratios))


def _believed(
    turns: Sequence[Turn], rivals: Collection[Sequence[Turn]], device: str
) -> tuple[list[float], str, list[Finding]]:
    """The samples that count, by which clock, and why if it is not the usual one."""
    by_device = [s for turn in turns for s in turn.device_ms]
    inner, outer = statistics.median(by_device), _median(turns, "wall_ms")
    if device != "cuda":
        queued = [one for turn in turns for one in turn.queued_ms]
        return by_device, "CPU time", _idle(inner, outer - (statistics.median(queued) if queued else 0.0))
    beyond = _gap(turns, rivals, "wall_ms", "device_ms")
    if beyond <= max(inner * WALL_SHARE, WALL_MS["beside" if rivals else "alone"]):
        return by_device, "CUDA events", []
    claim = "the device worked on after its stream was done; wall time counts"
    evidence = f"events say {inner:.3g} ms, the whole device took {beyond:.3g} ms longer"
    honest = (outer - inner) - beyond
    return [s - honest for turn in turns for s in turn.wall_ms], "wall time", [Finding(claim, evidence)]


def _gap(own: Sequence[Turn], rivals: Collection[Sequence[Turn]], outer: str, inner: str) -> float:
    """By how much one clock's typical sample exceeds the other's, less what is so for the rivals as well.

    The rivals are the judge's own baselines, with the same contents, flush and messages, so theirs is honest.
    """
    honest = min((_difference(theirs, outer, inner) for theirs in rivals), default=0.0)
    return _difference(own, outer, inner) - honest


def _difference(turns: Sequence[Turn], outer: str, inner: str) -> float:
    return float(statistics.median([gap for turn in turns for gap in _gaps(turn, outer, inner)]))


def unsure(turns: Sequence[Turn], device: str) -> float:
    """Milliseconds by which what typically passes beside two honest ones' samples may differ: the width of the interval
    of these turns'. It is asked of baselines among themselves: beside a candidate they would be as unsteady as it likes
    them to be."""
    inner = "device_ms" if device == "cuda" else "wall_ms"
    return spread_of([statistics.median(_gaps(turn, "outside_ms", inner)) for turn in turns])


def _gaps(turn: Turn, outer: str, inner: str) -> list[float]:
    return [a - b for a, b in zip(getattr(turn, outer), getattr(turn, inner), strict=True)]


def _median(turns: Sequence[Turn], clock: str) -> float:
    return float(statistics.median([sample for turn in turns for sample in getattr(turn, clock)]))


def _idle(inner: float, outer: float) -> list[Finding]:
    """A CPU candidate that waits for somebody: a sleep, a thread of its own, another process."""
    if outer <= max(inner * 5, inner + 20):
        return []
    return [Finding("it waits while it is timed", f"{inner:.3g} ms of processor time in {outer:.3g} ms")]


def _rounds(samples: Sequence[float], turns: Sequence[Turn]) -> list[float]:
    """The median of each turn."""
    medians, start = [], 0
    for turn in turns:
        end = start + len(turn.device_ms)
        medians.append(statistics.median(samples[start:end]))
        start = end
    return medians


def _typical(turn: Turn) -> float:
    return max(statistics.median(turn.device_ms), 1e-6)
