"""A lane: one process as the race sees it, for one step, as called or as a graph's replay."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from crucible import hardware
from crucible.judge.evidence import Costs, Kernel, NotMeasured
from crucible.judge.process import CandidateProcess, Ended
from crucible.judge.timing import Turn
from crucible.judge.verdict import Cheated, Outcome
from crucible.judge.verify import Stop, stop_if_raised

MOST_PLACES = 1 << 31
_chance = random.SystemRandom()


@dataclass(frozen=True)
class Contents:
    """What a timed step runs on: a case's values, moved round by another number of places in each call."""

    backward: bool
    """Forward+backward, or forward alone."""
    secret: int
    """Places for the call that is compared; the judge and the oracle alone know them. 0: the values stay in place."""

    @property
    def base(self) -> int:
        """The case whose values they are; only case 0 has cotangents in every run."""
        return 0 if self.backward else 1

    def chosen(self) -> int:
        """Places for a call whose answer nobody compares."""
        return _chance.randrange(1, MOST_PLACES) if self.secret else 0


def secret_contents(training: bool) -> tuple[Contents, ...]:
    """Forward's contents, and in training those of forward+backward, for one run."""
    return tuple(Contents(b, _chance.randrange(1, MOST_PLACES)) for b in ((False, True) if training else (False,)))


class RivalLost(Exception):
    """A baseline's process is over; nothing that a candidate is blamed for."""

    def __init__(self, name: str, outcome: Outcome) -> None:
        super().__init__(f"{name} {outcome.words}")
        self.name = name
        self.outcome = outcome


class Lane:
    """Turns of one process at forward, or forward+backward."""

    def __init__(self, name: str, process: CandidateProcess, contents: Contents) -> None:
        self._name = name
        self.process = process
        self.contents = contents
        self.backward = contents.backward
        self.replay = False

    @property
    def name(self) -> str:
        return self._name

    def set_up(self) -> None:
        """Contents in place, and a first call, which may take as long as a build: `torch.compile` works then.

        Raises Ended or Stop, as everything here does.
        """
        self._ask({"do": "set_up", "case": self.contents.base}, self.process.limits.run_s)
        self._sample(self.contents.chosen(), self.process.limits.build_s)

    def turn(self, samples: int, checked: bool) -> Turn:
        limit_s = self.process.limits.run_s * 2
        self._sample(self.contents.chosen(), limit_s)
        taken = []
        for number in range(samples):
            last = checked and number == samples - 1
            taken.append(self._sample(self.contents.secret if last else self.contents.chosen(), limit_s))
        return Turn(*zip(*taken, strict=True))

    def replayed(self) -> Lane | str:
        """A lane that replays the step's CUDA graph, or why there can be none."""
        reply = self.process.ask(
            {"do": "capture_graph", "backward": self.backward}, "timing", self.process.limits.build_s
        )
        if "raised" in reply:
            return str((reply["message"].splitlines() or ["?"])[0])
        lane = type(self)(self.name, self.process, self.contents)
        lane.replay = True
        return lane

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
        if min(device_ms, wall_ms) < 0 or device_ms > outside_ms * 2 * max(hardware.cores(), 1):
            raise Stop(Cheated("forged message", f"its clock reports what cannot be: {device_ms} ms"))
        return device_ms, wall_ms, outside_ms

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        reply = self.process.ask({**request, "backward": self.backward}, "timing", limit_s)
        stop_if_raised(reply, "timing")
        return reply


class Rival(Lane):
    """A baseline's lane: when it fails, the race goes on without it."""

    def turn(self, samples: int, checked: bool) -> Turn:
        try:
            return super().turn(samples, checked)
        except (Ended, Stop) as end:
            raise RivalLost(self.name, end.outcome) from end
