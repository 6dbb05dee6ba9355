"""A lane: one process as the race sees it, for one step, as called or as a graph's replay."""

from __future__ import annotations

import time
from typing import Any

from crucible import hardware
from crucible.judge.evidence import Costs, Kernel, NotMeasured
from crucible.judge.process import CandidateProcess, Ended
from crucible.judge.timing import Turn
from crucible.judge.verdict import Cheated, Outcome
from crucible.judge.verify import Stop, stop_if_raised

FORWARD_CASE = 1
"""Contents of the timed forward: those of case 1, whose weights are case 0's."""
BACKWARD_CASE = 0
"""Contents of the timed forward+backward: case 0 has cotangents, so that its gradients can be checked again."""


class RivalLost(Exception):
    """A baseline's process is over; nothing that a candidate is blamed for."""

    def __init__(self, name: str, outcome: Outcome) -> None:
        super().__init__(f"{name} {outcome.words}")
        self.name = name
        self.outcome = outcome


class Lane:
    """Turns of one process at forward, or forward+backward."""

    def __init__(self, name: str, process: CandidateProcess, *, backward: bool) -> None:
        self._name = name
        self.process = process
        self.backward = backward
        self.case = BACKWARD_CASE if backward else FORWARD_CASE
        self.replay = False

    @property
    def name(self) -> str:
        return self._name

    def set_up(self) -> None:
        """Contents in place, and first calls, which may take as long as a build: `torch.compile` works then.

        Raises Ended or Stop, as everything here does.
        """
        self._ask({"do": "set_up", "case": self.case}, self.process.limits.run_s)
        self._turn(1, -1, self.process.limits.build_s)

    def turn(self, samples: int, keep: int) -> Turn:
        return self._turn(samples, keep, self.process.limits.run_s * (samples + 1))

    def replayed(self) -> Lane | str:
        """A lane that replays the step's CUDA graph, or why there can be none."""
        reply = self.process.ask(
            {"do": "capture_graph", "backward": self.backward}, "timing", self.process.limits.build_s
        )
        if "raised" in reply:
            return str((reply["message"].splitlines() or ["?"])[0])
        lane = type(self)(self.name, self.process, backward=self.backward)
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
            peak_bytes=reply["peak_bytes"],
            allocations=reply["allocations"],
            kernels=tuple(Kernel(name, count, float(ms)) for name, count, ms in reply["kernels"]),
            span_ms=float(reply["span_ms"]),
            streams=reply["streams"],
        )

    def _turn(self, samples: int, keep: int, limit_s: float) -> Turn:
        request = {"do": "turn", "samples": samples, "keep": keep, "replay": self.replay}
        start = time.monotonic()
        reply = self._ask(request, limit_s)
        return _as_turn(reply, samples, (time.monotonic() - start) * 1e3)

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        reply = self.process.ask({**request, "backward": self.backward}, "timing", limit_s)
        stop_if_raised(reply, "timing")
        return reply


class Rival(Lane):
    """A baseline's lane: when it fails, the race goes on without it."""

    def turn(self, samples: int, keep: int) -> Turn:
        try:
            return super().turn(samples, keep)
        except (Ended, Stop) as end:
            raise RivalLost(self.name, end.outcome) from end


def _as_turn(reply: dict[str, Any], samples: int, outside_ms: float) -> Turn:
    """A turn from a process's own words. Raises Stop when they cannot be true."""
    device = tuple(float(ms) for ms in reply["device_ms"])
    wall = tuple(float(ms) for ms in reply["wall_ms"])
    too_much = outside_ms * 2 * max(hardware.cores(), 1)
    if len(device) != samples or len(wall) != samples or min(device + wall) < 0 or sum(device) > too_much:
        raise Stop(Cheated("forged message", f"its clock reports what cannot be: {list(device)[:3]} ms"))
    return Turn(device, wall, outside_ms)
