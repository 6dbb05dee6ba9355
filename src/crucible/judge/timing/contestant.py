"""A contestant: one process as the race sees it, for one step, as called or as a graph's replay."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from crucible import hardware
from crucible.errors import ProcessLostError
from crucible.judge.process.candidate_process import CandidateProcess, Ended
from crucible.judge.process.tree_clock import NOTHING, Spent, kept_waiting_ms
from crucible.judge.timing.contents import OWN, Contents, Placed, TimedSlot
from crucible.judge.timing.race import Turn
from crucible.judge.verdict.evidence import Costs, Kernel, NotMeasured
from crucible.judge.verdict.stop import Stop, stop_if_raised
from crucible.judge.verdict.verdict import Cheated, NotJudged, Outcome

LEAST_MS = 1e-6
"""A nanosecond, below which no clock here counts: a time of nothing would divide by nothing."""
JUMP_MS = 50.0
"""Processor time is booked late on a busy machine: 4 ms were seen in a call of 1 ms."""
Check = Callable[[bool, Placed, str], object]
"""Compares what the last sample gave, of forward+backward or forward, with the answer to its contents; `earlier` asks
whether the outputs of the one before it are still what they were."""


class BaselineLost(Exception):
    """A baseline's process is over; nothing that a candidate is blamed for."""

    def __init__(self, name: str, outcome: Outcome) -> None:
        super().__init__(f"{name} {outcome.words}")
        self.name = name
        self.outcome = outcome


class ProcessContestant:
    """Turns of one process at forward, or forward+backward."""

    def __init__(self, name: str, process: CandidateProcess, contents: Contents, slot: TimedSlot, check: Check) -> None:
        self._name = name
        self._check = check
        self._checked = 0
        self._slot = slot
        self.process = process
        self.contents = contents
        self.backward = contents.backward
        self.replay = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def checks(self) -> int:
        return self.contents.checks

    @property
    def weights(self) -> int:
        return len(self.contents.weights)

    def set_up(self) -> None:
        """Contents in place, and a first call, which may take as long as a build: `torch.compile` works then.

        Raises Ended or Stop, as everything here does.
        """
        request = {"do": "set_up", "case": self.contents.base}
        self._ask(request, self.process.limits.run_s)
        self._sample(Placed(OWN, 0, self.contents.base), self.process.limits.build_s)

    def look_at(self, slot: TimedSlot) -> None:
        """Contents come from there from now on: the oracle may be another than at first."""
        self._slot = slot

    def turn(self, samples: int, checked: int, weights: int = -1) -> Turn:
        limit_s, case = self.process.limits.run_s * 2, self.contents.weights[weights]
        hurried = weights >= 0
        self._sample(self.contents.chosen(case), limit_s)
        taken = []
        for number in range(samples):
            compared = number == checked
            placed = self.contents.secret(self._checked, case) if compared else self.contents.chosen(case)
            taken.append(self._sample(placed, limit_s, hurried=hurried and compared))
            if compared:
                self._compare(placed, limit_s)
        return Turn(*zip(*taken, strict=True))

    def _compare(self, placed: Placed, limit_s: float) -> None:
        """The call that was made, and what is left of its outputs after one more."""
        self._checked += 1
        found = self._check(self.backward, placed, "")
        if not self.replay:  # a graph has one place for its outputs
            self._sample(self.contents.chosen(placed.weights), limit_s)
            self._check(self.backward, found if isinstance(found, Placed) else placed, "earlier")

    def replayed(self) -> ProcessContestant | str:
        """A contestant that replays the step's CUDA graph, or why there can be none."""
        reply = self.process.ask(
            {"do": "capture_graph", "backward": self.backward}, "timing", self.process.limits.build_s
        )
        if "raised" in reply:
            return str((reply["message"].splitlines() or ["?"])[0])
        contestant = type(self)(self.name, self.process, self.contents, self._slot, self._check)
        contestant.replay = True
        return contestant

    def costs(self) -> Costs | NotMeasured:
        """What a call takes beside time."""
        limit_s = self.process.limits.run_s * 3
        reply = self.process.ask({"do": "profile", "backward": self.backward}, "profiling", limit_s)
        if "raised" in reply:
            return NotMeasured(f"the profiler failed: {(reply['message'].splitlines() or ['?'])[0]}")
        return Costs(
            first_call_s=float(reply["first_call_s"]),
            busy_ms=float(reply["busy_ms"]),
            peak_bytes=reply["peak_bytes"],
            allocations=reply["allocations"],
            kernels=tuple(Kernel(name, count, float(ms)) for name, count, ms in reply["kernels"]),
            span_ms=float(reply["span_ms"]),
            streams=reply["streams"],
            operators=tuple(Kernel(name, count, float(ms)) for name, count, ms in reply["operators"]),
            operators_ms=float(reply["operators_ms"]),
            call_ms=float(reply["call_ms"]),
        )

    def _sample(
        self, placed: Placed, limit_s: float, hurried: bool = False
    ) -> tuple[float, float, float, float, float]:
        """Milliseconds of one call, in the order of a Turn's clocks; where it is `hurried`, another follows at once, as
        a program's calls do, whose outputs take the place of the first one's."""
        request = {
            "do": "sample",
            "seed": placed.seed if self.contents.inside else OWN,
            "own": placed.case if placed.seed == OWN else -1,
            "weights": placed.weights,
            "draws": placed.draws,
            "replay": self.replay,
            "hurried": hurried,
        }
        with self._handed(placed) as handed:
            before, kept, start = self._spent(), kept_waiting_ms(), time.monotonic()
            reply = self._ask(request, limit_s, handed)
            passed_ms, spent = (time.monotonic() - start) * 1e3, self._spent().since(before)
        outside_ms = max(0.0, passed_ms - (kept_waiting_ms() - kept))  # a busy machine keeps the judge waiting too
        device_ms, wall_ms = float(reply["device_ms"]), float(reply["wall_ms"])
        most_ms = JUMP_MS + passed_ms * 2 * max(hardware.cores(), 1)  # all of it: it may work while the judge waits
        if min(device_ms, wall_ms) < 0 or device_ms > most_ms:
            raise Stop(Cheated("forged message", f"its clock reports what cannot be: {device_ms} ms"))
        clocks = [max(each, LEAST_MS) for each in (device_ms, wall_ms, outside_ms)]
        return clocks[0], clocks[1], clocks[2], spent.worked_ms, spent.queued_ms

    def _handed(self, placed: Placed) -> contextlib.AbstractContextManager[Mapping[str, int]]:
        return contextlib.nullcontext({}) if self.contents.inside else self._slot.placed(placed)

    def _spent(self) -> Spent:
        return self.process.spent() if self._slot.counts_processors else NOTHING

    def _ask(
        self, request: dict[str, Any], limit_s: float, handed: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, Any]:
        reply = self.process.ask({**request, "backward": self.backward}, "timing", limit_s, handed)
        stop_if_raised(reply, "timing")
        return reply


class BaselineContestant(ProcessContestant):
    """A baseline's contestant: when it fails, the race goes on without it."""

    def turn(self, samples: int, checked: int, weights: int = -1) -> Turn:
        try:
            return super().turn(samples, checked, weights)
        except (Ended, Stop) as end:
            raise BaselineLost(self.name, end.outcome) from end
        except ProcessLostError as error:
            raise BaselineLost(self.name, NotJudged(str(error), failed=True)) from error
