"""Brings a run's baselines up beside the candidates' builds, finds out which are right, and times them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from crucible.errors import ProcessLostError
from crucible.judge.examine import Examination, Setting
from crucible.judge.process.candidate_process import Ended
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.timing.baselines import Baseline, as_candidate
from crucible.judge.timing.contents import Placed, TimedSlot
from crucible.judge.timing.contestant import BaselineContestant, BaselineLost, ProcessContestant
from crucible.judge.timing.contestants import Contestants
from crucible.judge.timing.measure import GRAPH_BELOW_MS, Readings
from crucible.judge.verdict.drawn import or_drawn
from crucible.judge.verdict.evidence import NOT_COMPARED, Compared, Finding, Measured, TensorError
from crucible.judge.verdict.stop import Stop
from crucible.judge.verdict.verdict import NotJudged, Outcome, Passed, Verdict
from crucible.judge.verify import Verifier

MOST_REVIVALS = 3
"""Of one baseline in one run."""


class BaselineRuns:
    """The baselines' processes, from their start until `close`."""

    def __init__(self, baselines: Sequence[Baseline], setting: Setting, work: Path, field: Contestants) -> None:
        self._field = field
        self._covers = [contents.backward for contents in setting.contents]
        self._entries = [
            _Entry(Examination(as_candidate(b, setting.task), setting, work / f"baseline{i}"))
            for i, b in enumerate(baselines)
        ]

    def build(self) -> None:
        """Starts all of them; may run beside everything else."""
        if self._entries:
            with ThreadPoolExecutor(len(self._entries)) as pool:
                list(pool.map(lambda entry: entry.examination.build(), self._entries))

    def warm(self, oracle: OracleProcess, say: Callable[[str], None]) -> None:
        """Constructs and compiles, side by side; may run beside candidates' builds."""
        if self._entries:
            say(f"baselines: {', '.join(entry.name for entry in self._entries)}")
            with ThreadPoolExecutor(len(self._entries)) as pool:
                list(pool.map(lambda entry: entry.warm(oracle), self._entries))

    def enter(self, oracle: OracleProcess, description: dict[str, Any], say: Callable[[str], None]) -> list[Verdict]:
        """Checks them one by one, then times all that are right, in turns, undisturbed."""
        for entry in self._entries:
            entry.check(oracle, description)
        for backward in self._covers:
            self._note(self._field.meet([entry.contestants[backward] for entry in self._right()]))
        for entry in self._right():
            entry.take_stock()
        for backward in self._covers:
            contestants = [contestant for entry in self._right() for contestant in self._replayed(entry, backward, say)]
            self._note(self._field.meet(contestants))
        verdicts = [entry.verdict() for entry in self._entries]
        for verdict in verdicts:
            say(f"baseline {verdict.candidate}: {verdict.outcome.words}")
        return verdicts

    def revive(self, oracle: OracleProcess, description: dict[str, Any], say: Callable[[str], None]) -> None:
        """Brings up again what was lost beside a candidate, as often as `MOST_REVIVALS`: the next ones take turns with
        all that the first took turns with."""
        for number, entry in enumerate(self._entries):
            if entry.name not in self._field.lost or entry.outcome is not None or entry.revivals >= MOST_REVIVALS:
                continue
            say(f"baseline {entry.name} once more: it was lost")
            fresh = _Entry(entry.examination.afresh(), entry.revivals + 1)
            fresh.examination.build()
            fresh.warm(oracle)
            fresh.check(oracle, description)
            self._entries[number] = fresh
            if fresh.outcome is None:
                del self._field.lost[entry.name]
                self._field.enter({(backward, False): one for backward, one in fresh.contestants.items()})
                self._field.enter({(b, True): one for b in self._covers for one in self._replayed(fresh, b, say)})

    def close(self) -> None:
        for entry in self._entries:
            entry.examination.close()

    def _right(self) -> list[_Entry]:
        return [entry for entry in self._entries if entry.outcome is None]

    def _note(self, records: dict[str, tuple[Measured, list[Finding]]]) -> None:
        """A baseline that failed while it was timed has not passed, whatever it answered before."""
        for entry in self._right():
            entry.outcome = self._field.lost.get(entry.name)
            if entry.outcome is None and entry.name in records:
                record, doubts = records[entry.name]
                entry.readings.add(record)
                entry.readings.findings += doubts

    def _replayed(self, entry: _Entry, backward: bool, say: Callable[[str], None]) -> list[ProcessContestant]:
        """A contestant of graph replays where the step is short, can be captured, and is the step then."""
        as_called = self._field.alone_ms.get((backward, False), {})
        if self._field.device != "cuda" or as_called.get(entry.name, GRAPH_BELOW_MS) >= GRAPH_BELOW_MS:
            return []
        replayed = entry.replayed(backward)
        if isinstance(replayed, str):
            say(f"baseline {entry.name}: no graph replay ({replayed})")
            return []
        return [replayed]


def _slot(oracle: OracleProcess, setting: Setting) -> TimedSlot:
    return TimedSlot(oracle, setting.device.kind, setting.limits.oracle_s)


class _Entry:
    """One baseline on its way; `outcome` is None for as long as nothing speaks against it."""

    def __init__(self, examination: Examination, revivals: int = 0) -> None:
        self.examination = examination
        self.revivals = revivals
        self.name = examination.candidate.name
        self.contestants: dict[bool, ProcessContestant] = {}
        self.readings = Readings()
        self.outcome: Outcome | None = None
        self.verifier: Verifier | None = None
        self.multiple = 1.0
        self.busy_s = 0.0

    def warm(self, oracle: OracleProcess) -> None:
        """Construction and first calls, compilation included."""
        setting = self.examination.setting
        slot = _slot(oracle, setting)
        with self._ending():
            process = self.examination.construct()
            for contents in setting.contents:
                self.contestants[contents.backward] = BaselineContestant(
                    self.name, process, contents, slot, self._compare
                )
                self.contestants[contents.backward].set_up()

    def check(self, oracle: OracleProcess, description: dict[str, Any]) -> None:
        """A wrong baseline is reported, not compared."""
        process = self.examination.process
        if self.outcome is not None or process is None:
            return
        self.multiple = description["multiple"]
        self.verifier = Verifier(process, oracle, description, training=False)
        with self._ending():
            for contestant in self.contestants.values():
                contestant.look_at(_slot(oracle, self.examination.setting))
                contestant.contents = contestant.contents.known(description)
                contestant.turn(1, 0)

    def take_stock(self) -> None:
        with self._ending():
            self.readings.costs = list(self.contestants.values())[-1].costs()

    def replayed(self, backward: bool) -> ProcessContestant | str:
        """A contestant of graph replays, or why there is none. The step as called stays what it is."""
        try:
            contestant = self.contestants[backward].replayed()
            if isinstance(contestant, ProcessContestant):
                contestant.turn(1, 0)
            return contestant
        except (Ended, Stop, BaselineLost) as end:
            return end.outcome.words
        except ProcessLostError as error:
            return str(error)

    def _compare(self, backward: bool, placed: Placed, what: str) -> Placed:
        assert self.verifier is not None
        return self.verifier.check_timed(backward, placed, what)

    @property
    def _errors(self) -> tuple[TensorError, ...]:
        return self.verifier.timed_errors if self.verifier else ()

    def verdict(self) -> Verdict:
        forward = tuple(error for error in self._errors if error.part == "forward")
        gradients = tuple(error for error in self._errors if error.part == "gradient")
        return self.readings.fill(
            Verdict(
                self.name,
                or_drawn(self.outcome or Passed(), draws=bool(self.verifier and self.verifier.description["draws"])),
                Compared(forward, self.multiple) if forward else NOT_COMPARED,
                Compared(gradients, self.multiple) if gradients else NOT_COMPARED,
                build_s=self.examination.build_s,
                total_s=self.examination.build_s + self.busy_s,
                log=process.log if (process := self.examination.process) else "",
            )
        )

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """Whatever ends it is its outcome; its memory is the others' then."""
        start = time.monotonic()
        try:
            yield
        except (Ended, Stop, BaselineLost) as end:
            self.outcome = end.outcome
            self.examination.close()
        except ProcessLostError as error:
            self.outcome = NotJudged(str(error), failed=True)
            self.examination.close()
        finally:
            self.busy_s += time.monotonic() - start
