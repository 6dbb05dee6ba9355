"""Attempts: one candidate after another, whatever becomes of the judge's own processes on the way.

What goes wrong while one candidate is judged is that candidate's not-judged and nobody else's: the next one finds an
oracle that answers and a device that computes, or the run ends with all that is finished.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible.errors import JudgeError, ProcessLostError
from crucible.judge.examine import Examination
from crucible.judge.process.limits import Limits
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.process.supervised import SupervisedProcess, private_environment
from crucible.judge.timing.contestants import Contestants
from crucible.judge.verdict.verdict import (
    Crashed,
    IllegalAccess,
    LaunchError,
    NotJudged,
    OutOfMemory,
    TimedOut,
    Verdict,
    to_json,
)

_SUSPICIOUS = (Crashed, IllegalAccess, LaunchError, OutOfMemory, TimedOut)
"""Outcomes after which a GPU may compute no more."""
PROBE_S = 60.0
PAUSES_S = (0.0, 5.0, 20.0)
"""Before each look at the device; a driver that resets a GPU takes seconds."""


@dataclass
class Attempts:
    """Judges candidates with an oracle that is renewed when it is lost."""

    device: str
    folder: Path
    """For a probe's process."""
    limits: Limits
    renew: Callable[[], tuple[OracleProcess, dict[str, Any]]]
    """A prepared oracle and its description."""
    rivals: Contestants
    say: Callable[[str], None]
    oracle: OracleProcess
    description: dict[str, Any]

    def judge(self, examination: Examination) -> Verdict:
        """A candidate's verdict. Raises JudgeError where no oracle can be had any more, or the device is lost."""
        verdict = self._attempted(examination)
        if self.device != "cpu" and (isinstance(verdict.outcome, _SUSPICIOUS) or is_own_failure(verdict)):
            self._await_device()
            self.restore()
        return verdict

    def restore(self) -> None:
        """An oracle that answers, in place of one that does not. Raises JudgeError."""
        if self.oracle.is_well():
            return
        self.say("the oracle does not answer: a fresh one works out the reference's answers again")
        self.oracle.kill()
        try:
            self.oracle, self.description = self.renew()
        except ProcessLostError:
            self.oracle, self.description = self.renew()

    def _attempted(self, examination: Examination) -> Verdict:
        """Twice where a process of the judge's own was lost: whoever ended it, the candidate may not have."""
        name, stage = examination.candidate.name, ""
        try:
            return _sound(examination.judge(self.oracle, self.description, self.rivals))
        except ProcessLostError as error:
            stage = error.stage
            self.say(f"{name}: {error}; once more, with fresh processes")
            examination.close()
            self.restore()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this candidate's alone
            return self._failed(examination, error)
        again = examination.afresh()
        try:
            again.build()
            return _sound(again.judge(self.oracle, self.description, self.rivals))
        except Exception as error:  # noqa: BLE001 - as above
            if stage and isinstance(error, ProcessLostError) and error.stage == stage:
                return Verdict(name, Crashed(stage, "the process that watches it ended, twice"))
            return self._failed(again, error)
        finally:
            again.close()

    def _failed(self, examination: Examination, error: Exception) -> Verdict:
        examination.close()
        self.restore()
        return failed(examination, error)

    def _await_device(self) -> None:
        """Returns once a fresh process computes on the device. Raises JudgeError."""
        for pause_s in PAUSES_S:
            time.sleep(pause_s)
            if answers(self.device, self.folder, self.limits):
                return
        raise JudgeError(f"the {self.device} device computes no more: reset it (nvidia-smi --gpu-reset), then go on")


def _sound(verdict: Verdict) -> Verdict:
    """A verdict that can be written down. Raises ValueError for one with a number that is none."""
    json.dumps(to_json(verdict), allow_nan=False)
    return verdict


def failed(examination: Examination, error: Exception) -> Verdict:
    """The verdict where the judge failed on one candidate; where in its own code goes to the candidate's log."""
    own = isinstance(error, JudgeError)
    words = str(error) if own else f"{type(error).__name__}: {error}"[:500]
    log = examination.process.log if examination.process else ""
    trace = "" if own else "".join(traceback.format_exception(error))[-4000:]
    return Verdict(
        examination.candidate.name,
        NotJudged(words or type(error).__name__, failed=True),
        findings=tuple(examination.findings),
        build_s=examination.build_s,
        total_s=examination.busy_s,
        log=f"{log}\n{trace}".strip(),
    )


def is_own_failure(verdict: Verdict) -> bool:
    """Whether it is the judge that failed on it."""
    return isinstance(verdict.outcome, NotJudged) and verdict.outcome.failed


def answers(device: str, folder: Path, limits: Limits) -> bool:
    """Whether a process that has just started can compute on the device."""
    (folder / "probe").mkdir(exist_ok=True)
    probe = SupervisedProcess(
        "worker.probe",
        device,
        folder=folder / "probe",
        passed=[],
        environment=private_environment(folder / "probe", ""),
        limits=limits,
    )
    return probe.end(PROBE_S).get("code") == 0
