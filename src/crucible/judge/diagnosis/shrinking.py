"""The smallest shape at which a candidate that fails still fails: facts beside a verdict, which they never change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from crucible import shapes
from crucible.judge.diagnosis.specialised import hard_coded
from crucible.judge.process.candidate_process import Ended
from crucible.judge.verdict.trials import (
    NOT_SHRUNK,
    OTHERWISE,
    REFUSED,
    RIGHT,
    WRONG,
    At,
    NotShrunk,
    SmallestFailing,
    Trial,
    changed,
    edges,
)
from crucible.judge.verdict.verdict import IllegalAccess, Incomplete, LaunchError, Outcome, Passed, TimedOut, Wrong
from crucible.judge.verify import Verifier
from crucible.shapes import Sizes
from crucible.task import Task

MOST_RUNS = 64
"""Of the candidate: a bound in one of four sizes of 67 takes about 20, bounds in all four 57."""
INPUTS = 2
"""On which a shape has to be right: at one element a wrong value may come out right by chance."""
FIRST_INPUTS = 100
"""Their number, which no case of the judge's has."""
LEAST_S = 1.0
"""For a run when the time is nearly up."""
Look = Callable[[Sizes], str]
_VALUES = ("forward", "gradient", "nan")


class Enough(Exception):
    """The search is over before its end: why."""


def smallest_failing(outcome: Outcome, verifier: Verifier, task: Task, source: str) -> SmallestFailing | NotShrunk:
    """What becomes of a candidate that failed the verifier's last case at smaller shapes. Its process may be over
    afterwards."""
    if not _is_shrunk(outcome, verifier.emulated):
        return NOT_SHRUNK
    own = _free_sizes(task, verifier.description["sizes"])
    first = {**own, **{name: size for name, size in verifier.sizes.items() if name in own}}
    if not first or not verifier.limits.shrink_s:
        reason = "the task has no size of its inputs' alone" if not first else "no time was given for it"
        return NotShrunk(reason)
    if fixed := hard_coded(source, _own_sizes(task, own)) or hard_coded(source, own):
        return NotShrunk(f"size-specialised: {fixed}")
    tries = _Tries(outcome, verifier)
    search = Search(first, tries.look)
    search.run(
        starts=[*reversed(shapes.cut_down(first)), *reversed(shapes.ragged(first, {}))],
        elsewhere=[own, {name: 1 << size.bit_length() - 1 for name, size in first.items()}],
    )
    if search.found is None:
        return NotShrunk(f"at {shapes.words(first)} it is not seen to fail again: {search.stopped}")
    words = tries.words.get(_at(search.found), outcome.words)
    trials = tuple(Trial(at, came) for at, came in search.trials.items())
    return SmallestFailing(_at(search.found), words, _at(first), trials, search.stopped)


class Search:
    """From a shape that fails to one of which no size can be one less, the others as they are, and to a shape next to
    it that is right. Shapes are looked at once each."""

    def __init__(self, first: Sizes, look: Look) -> None:
        self.first = {name: first[name] for name in shapes.batch_first(first)}
        self.found: Sizes | None = None
        """The smallest that is known to fail; the first one where that is too much work to look at again."""
        self.trials: dict[At, str] = {}
        self.stopped = ""
        self._look = look

    def run(self, starts: Sequence[Sizes], elsewhere: Sequence[Sizes]) -> None:
        """`starts` are smaller shapes, of all sizes or a few, to begin from where the first is too much work; at those
        `elsewhere` it may be right where nothing smaller is."""
        try:
            if not self._begin(starts):
                return
            least = dict.fromkeys(self.first, 1)
            if self._fails(least):
                self.found = least
            self._descend()
            if not any(self.at(below) == RIGHT for below in self._below().values()):
                self._rise(elsewhere)
            self._double()
        except Enough as enough:
            self.stopped = str(enough)

    def at(self, sizes: Sizes) -> str:
        """How it comes out at these sizes, the others as at first. Raises Enough."""
        ordered = {name: sizes.get(name, size) for name, size in self.first.items()}
        key = _at(ordered)
        if key not in self.trials:
            self.trials[key] = self._look(ordered)
        return self.trials[key]

    def _fails(self, sizes: Sizes) -> bool:
        return self.at(sizes) == WRONG

    def _begin(self, starts: Sequence[Sizes]) -> bool:
        """Whether there is a shape to go on from."""
        came = self.at(self.first)
        if came in (RIGHT, OTHERWISE):
            self.stopped = "it is right on other inputs" if came == RIGHT else "it ends otherwise"
            return False
        self.found = self.first
        if came == WRONG:
            return True
        begin = next((sizes for sizes in starts if self._fails(sizes)), None)
        self.found = self.first if begin is None else {**self.first, **begin}
        return begin is not None

    def _descend(self) -> None:
        """Each size in turn, and again one that others have made smaller."""
        names = list(self.first)
        while names:
            for name in names:
                self._lower(name)
            names = [name for name, below in self._below().items() if self._fails(below)]

    def _below(self) -> dict[str, Sizes]:
        """The shapes that are one less in one size."""
        assert self.found is not None
        return {name: {**self.found, name: size - 1} for name, size in self.found.items() if size > 1}

    def _lower(self, name: str) -> None:
        """One size down to where it fails and one less does not: 1 if that fails, then by halves."""
        assert self.found is not None
        low, high = 0, self.found[name]
        while high - low > 1:
            middle = (low + high) // 2 if low else 1
            if self._fails({**self.found, name: middle}):
                high = middle
                self.found = {**self.found, name: high}
            else:
                low = middle

    def _rise(self, elsewhere: Sequence[Sizes]) -> None:
        """Towards a larger shape that is right, one size after the other, space first, to two next to each other."""
        assert self.found is not None
        right = next((sizes for sizes in elsewhere if self.at(sizes) == RIGHT), None)
        at = dict(self.found)
        for name in reversed(self.first) if right else ():
            assert right is not None
            beyond = {**at, name: right[name]}
            if self.at(beyond) == RIGHT:
                self._close(at, name, right[name])
                return
            at = beyond

    def _close(self, at: Sizes, name: str, right: int) -> None:
        wrong = at[name]
        while abs(right - wrong) > 1:
            middle = (right + wrong) // 2
            if self.at({**at, name: middle}) == RIGHT:
                right = middle
            else:
                wrong = middle

    def _double(self) -> None:
        """Where a size is right and the next one wrong: whether it is so at twice that size."""
        assert self.found is not None
        for edge in edges(self.trials, _at(self.found)):
            for size in (2 * edge.right, 2 * edge.right + 1, edge.right + 1) if edge.right > 1 else ():
                self.at(dict(changed(edge.at, edge.name, size)))


class _Tries:
    """Runs a candidate at one shape after the other."""

    def __init__(self, failed: Outcome, verifier: Verifier) -> None:
        self._failed = failed
        self._verifier = verifier
        self._until = time.monotonic() + verifier.limits.shrink_s
        self._runs = 0
        self.words: dict[At, str] = {}
        """How it failed, where it did."""

    def look(self, sizes: Sizes) -> str:
        """Fresh inputs of these sizes, the weights of the case that it failed. Raises Enough."""
        for number in range(INPUTS):
            self._stop_if_enough()
            like = self._verifier.case["index"]
            trial = self._verifier.oracle.trial(like, sizes, FIRST_INPUTS + number, self._verifier.limits.oracle_s)
            if "refused" in trial:
                return REFUSED
            outcome = self._outcome(trial["case"], sizes)
            if _alike(outcome, self._failed):
                self.words[_at(sizes)] = outcome.words
                return WRONG
            if not isinstance(outcome, Passed):
                return OTHERWISE
        return RIGHT

    def _stop_if_enough(self) -> None:
        if self._runs >= MOST_RUNS:
            raise Enough(f"{MOST_RUNS} runs were made")
        if time.monotonic() >= self._until:
            raise Enough(f"{self._verifier.limits.shrink_s:g} s were up")

    def _outcome(self, case: dict[str, Any], sizes: Sizes) -> Outcome:
        given = self._verifier
        self._runs += 1
        left_s = max(LEAST_S, self._until - time.monotonic())
        limits = replace(given.limits, run_s=min(given.limits.run_s, left_s))
        verifier = Verifier(
            given.process,
            given.oracle,
            given.description,
            training=given.training,
            emulated=given.emulated,
            limits=limits,
            maps=False,
        )
        try:
            return verifier.outcome_of(case)
        except Ended as ended:
            late = isinstance(ended.outcome, TimedOut) and limits.run_s == left_s
            words = f"{given.limits.shrink_s:g} s were up" if late else ended.outcome.words
            raise Enough(f"{words} (at {shapes.words(sizes)})") from ended


def _is_shrunk(outcome: Outcome, emulated: bool) -> bool:
    """Wrong values; on a GPU a fault takes the process along."""
    return _is_of_values(outcome) or (emulated and isinstance(outcome, IllegalAccess | LaunchError))


def _is_of_values(outcome: Outcome) -> bool:
    return isinstance(outcome, Incomplete) or (isinstance(outcome, Wrong) and outcome.what in _VALUES)


def _alike(one: Outcome, other: Outcome) -> bool:
    """Whether two failures are of one sort."""
    return type(one) is type(other) if not _is_of_values(other) else _is_of_values(one)


def _free_sizes(task: Task, cut: Sizes) -> Sizes:
    """What inputs alone read, as it is in the first case."""
    now = {**shapes.free_sizes(task.source), **task.sizes, **cut}
    free = {name: now[name] for name in shapes.free_sizes(task.source)}
    return free if all(type(size) is int and size > 0 for size in free.values()) else {}


def _own_sizes(task: Task, free: Sizes) -> Sizes:
    """The same as the task's text has them."""
    return {name: size for name, size in shapes.own_numbers(task.source).items() if name in free}


def _at(sizes: Sizes) -> At:
    return tuple(sizes.items())
