"""A contestant: one process as the race sees it, for one step, as called or as a graph's replay."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from crucible import hardware
from crucible.errors import ProcessLostError
from crucible.judge.process.candidate_process import CandidateProcess, Ended
from crucible.judge.timing.race import Turn
from crucible.judge.verdict.evidence import Costs, Kernel, NotMeasured
from crucible.judge.verdict.stop import Stop, stop_if_raised
from crucible.judge.verdict.verdict import Cheated, NotJudged, Outcome

MOST_PLACES = 1 << 31
MOST_CHECKS = 4
"""Calls of a race whose answers are compared; the oracle has fewer where outputs are large."""
LEAST_MS = 1e-6
"""A nanosecond, below which no clock here counts: a time of nothing would divide by nothing."""
JUMP_MS = 50.0
"""Processor time is booked late on a busy machine: 4 ms were seen in a call of 1 ms."""
_chance = random.SystemRandom()


@dataclass(frozen=True)
class Contents:
    """What a timed step runs on: a case's values, moved round by another number of places in each call."""

    backward: bool
    """Forward+backward, or forward alone."""
    secrets: tuple[int, ...]
    """Places for the calls that are compared; the judge and the oracle alone know them. Empty: the values stay in
    place, and every call has them."""

    @property
    def base(self) -> int:
        """The case whose values they are; only case 0 has cotangents in every run."""
        return 0 if self.backward else 1

    def chosen(self) -> int:
        """Places for a call whose answer nobody compares."""
        return _chance.randrange(1, MOST_PLACES) if self.secrets else 0

    def known(self, answers: int) -> Contents:
        """With as many secrets as the oracle has answers for."""
        return replace(self, secrets=self.secrets[:answers])


def secret_contents(training: bool) -> tuple[Contents, ...]:
    """Forward's contents, and in training those of forward+backward, for one run."""
    return tuple(
        Contents(backward, tuple(_chance.randrange(1, MOST_PLACES) for _ in range(MOST_CHECKS)))
        for backward in ((False, True) if training else (False,))
    )


Check = Callable[[bool, int], object]
"""Compares what the last sample gave: of forward+backward or forward, for the secret of that number."""


class BaselineLost(Exception):
    """A baseline's process is over; nothing that a candidate is blamed for."""

    def __init__(self, name: str, outcome: Outcome) -> None:
        super().__init__(f"{name} {outcome.words}")
        self.name = name
        self.outcome = outcome


class ProcessContestant:
    """Turns of one process at forward, or forward+backward."""

    def __init__(self, name: str, process: CandidateProcess, contents: Contents, check: Check) -> None:
        self._name = name
        self._check = check
        self._checked = 0
        self.process = process
        self.contents = contents
        self.backward = contents.backward
        self.replay = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def checks(self) -> int:
        return max(1, len(self.contents.secrets))

    def set_up(self) -> None:
        """Contents in place, and a first call, which may take as long as a build: `torch.compile` works then.

        Raises Ended or Stop, as everything here does.
        """
        self._ask({"do": "set_up", "case": self.contents.base}, self.process.limits.run_s)
        self._sample(self.contents.chosen(), self.process.limits.build_s)

    def turn(self, samples: int, checked: int) -> Turn:
        limit_s = self.process.limits.run_s * 2
        self._sample(self.contents.chosen(), limit_s)
        taken = []
        for number in range(samples):
            taken.append(self._sample(self._secret() if number == checked else self.contents.chosen(), limit_s))
            if number == checked:
                self._check(self.backward, self._checked % self.checks)
                self._checked += 1
        return Turn(*zip(*taken, strict=True))

    def _secret(self) -> int:
        """A new one for each check, for as long as there are."""
        return self.contents.secrets[self._checked % self.checks] if self.contents.secrets else 0

    def replayed(self) -> ProcessContestant | str:
        """A contestant that replays the step's CUDA graph, or why there can be none."""
        reply = self.process.ask(
            {"do": "capture_graph", "backward": self.backward}, "timing", self.process.limits.build_s
        )
        if "raised" in reply:
            return str((reply["message"].splitlines() or ["?"])[0])
        contestant = type(self)(self.name, self.process, self.contents, self._check)
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
        )

    def _sample(self, shift: int, limit_s: float) -> tuple[float, float, float]:
        """Device, wall and outside milliseconds of one call."""
        start = time.monotonic()
        reply = self._ask({"do": "sample", "shift": shift, "replay": self.replay}, limit_s)
        outside_ms = (time.monotonic() - start) * 1e3
        device_ms, wall_ms = float(reply["device_ms"]), float(reply["wall_ms"])
        most_ms = JUMP_MS + outside_ms * 2 * max(hardware.cores(), 1)
        if min(device_ms, wall_ms) < 0 or device_ms > most_ms:
            raise Stop(Cheated("forged message", f"its clock reports what cannot be: {device_ms} ms"))
        return max(device_ms, LEAST_MS), max(wall_ms, LEAST_MS), max(outside_ms, LEAST_MS)

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        reply = self.process.ask({**request, "backward": self.backward}, "timing", limit_s)
        stop_if_raised(reply, "timing")
        return reply


class BaselineContestant(ProcessContestant):
    """A baseline's contestant: when it fails, the race goes on without it."""

    def turn(self, samples: int, checked: int) -> Turn:
        try:
            return super().turn(samples, checked)
        except (Ended, Stop) as end:
            raise BaselineLost(self.name, end.outcome) from end
        except ProcessLostError as error:
            raise BaselineLost(self.name, NotJudged(str(error), failed=True)) from error
