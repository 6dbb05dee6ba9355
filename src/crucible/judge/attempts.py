"""Attempts: one candidate after another, whatever becomes of the judge's own processes on the way.

What goes wrong while one candidate is judged is that candidate's not-judged and nobody else's: the next one finds an
oracle that answers and a device that computes, or the run ends with all that is finished.
"""

from __future__ import annotations

import json
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crucible.emulator.trace import Trace
from crucible.errors import JudgeError, ProcessLostError, TaskError
from crucible.judge.examine import Examination
from crucible.judge.process.limits import Limits
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.process.supervised import SupervisedProcess, private_environment
from crucible.judge.timing.contestants import Contestants
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import (
    Crashed,
    IllegalAccess,
    LaunchError,
    NotJudged,
    OutOfMemory,
    TimedOut,
    Verdict,
    from_json,
    to_json,
)
from crucible.shapes import Sizes, words

_SUSPICIOUS = (Crashed, IllegalAccess, LaunchError, OutOfMemory, TimedOut)
"""Outcomes after which a GPU may compute no more."""
SMALLER = (1 / 16, 1 / 256)
"""Shares of the reference's work, at which kernels are judged that the emulator took too long for: their own may be far
beyond it."""
HASTE = 1 / 3
"""The share of a run's limit after which the emulator goes on to smaller sizes."""
SOON_S = 1.0
"""Of PyTorch on the CPU for one forward, of which a judgement makes some ten."""
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
    elsewhere: Callable[..., tuple[OracleProcess, dict[str, Any]]]
    """The same in a folder of its own, and told something else of the task."""
    rivals: Contestants
    say: Callable[[str], None]
    oracle: OracleProcess
    description: dict[str, Any]

    def judge(self, examination: Examination) -> Verdict:
        """A candidate's verdict. Raises JudgeError where no oracle can be had any more, or the device is lost."""
        if examination.emulated:
            examination.patience = HASTE
        verdict = self._attempted(examination)
        if examination.emulated and is_too_slow(verdict):
            verdict = self._at_smaller_sizes(examination, verdict)
        elif examination.emulated and examination.right_at and not examination.setting.task.asked:
            verdict = self._where_it_is_right(examination, verdict)
        elif examination.emulated and self.description["sizes"] and self._runs_no_kernel(examination, verdict):
            verdict = self._at_its_own_sizes(examination, verdict)
        if self.device != "cpu" and (isinstance(verdict.outcome, _SUSPICIOUS) or is_own_failure(verdict)):
            self._await_device()
            self.restore()
        return verdict

    def _runs_no_kernel(self, examination: Examination, verdict: Verdict) -> bool:
        """Whether it passes without one, at sizes that nobody asked for."""
        ran = examination.launched or not isinstance(verdict.accesses, Trace) or verdict.accesses.launches
        return verdict.evaluation and not ran and not examination.setting.task.asked

    def _at_smaller_sizes(self, examination: Examination, slow: Verdict) -> Verdict:
        """On what the emulator took too long for: the verdict at smaller sizes; where there are none, its own with all
        the time that a run may take."""
        tried = [self.description["sizes"]]
        for share in SMALLER:
            found = self._elsewhere(examination, {"share": share}, tried)
            if found is None:
                continue
            if not is_too_slow(found):
                claim = f"judged at smaller sizes than the emulator is usually given: {words(tried[-1])}"
                return replace(found, findings=(Finding(claim, slow.outcome.words), *found.findings))
            slow = found
        if len(tried) == 1:
            self.say(f"{examination.candidate.name}: once more, with all the time that a run may take")
            slow = self._again(examination, self.oracle, self.description, examination.setting.inputs)
        return _not_judged(slow)

    def _where_it_is_right(self, examination: Examination, verdict: Verdict) -> Verdict:
        """What is written for the task's own sizes is judged at these alone, all else cut down."""
        sizes = {**self.description["sizes"], **examination.right_at}
        only = {"first": [sizes], "smaller_weights": [], "further": [], "beyond": []}
        found = self._elsewhere(examination, only, [])
        if found is None or isinstance(found.outcome, NotJudged):
            return verdict
        claim = f"judged at the sizes that it is written for: {words(examination.right_at)}"
        return replace(found, findings=(Finding(claim, verdict.outcome.words), *found.findings))

    def _at_its_own_sizes(self, examination: Examination, verdict: Verdict) -> Verdict:
        """What runs no kernel of its own takes there what PyTorch takes, and may take another path than at sizes cut
        down for kernels."""
        own = {"first": [], "smaller_weights": [], "further": [], "beyond": [], "one_case": True, "within_s": SOON_S}
        found = self._elsewhere(examination, own, [])
        if found is None or isinstance(found.outcome, NotJudged | TimedOut | OutOfMemory):
            return verdict
        claim = "judged at the task's own sizes, since none of its kernels ran at those cut down for them"
        told = Finding(claim, words(self.description["sizes"]))
        kept = verdict if found.evaluation else found  # one case proves less than all of them did
        return replace(kept, findings=(told, *kept.findings))

    def _elsewhere(self, examination: Examination, other: dict[str, Any], tried: list[Sizes]) -> Verdict | None:
        """Of a fresh process at other sizes, by an oracle of their own, with what that has to say; None where there are
        none, or they are among those tried. Raises nothing: it is this candidate's alone."""
        folder = Path(tempfile.mkdtemp(prefix=f"{examination.folder.name}-elsewhere", dir=self.folder))
        try:
            oracle, description = self.elsewhere(folder, **other)
        except (JudgeError, TaskError):
            return None
        try:
            if description["sizes"] in tried:
                return None
            tried.append(description["sizes"])
            where = words(tried[-1]) or "the task's own sizes"
            self.say(f"{examination.candidate.name}: once more at {where}")
            verdict = self._again(examination, oracle, description, folder / "inputs")
        finally:
            oracle.kill()
        told = tuple(from_json(finding) for finding in description["findings"])
        return replace(verdict, findings=(*told, *verdict.findings))

    def _again(
        self, examination: Examination, oracle: OracleProcess, description: dict[str, Any], inputs: Path
    ) -> Verdict:
        """Of a fresh process, on what lies in that folder."""
        again = examination.afresh(inputs)
        try:
            again.build()
            return _sound(again.judge(oracle, description, self.rivals))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this candidate's alone
            return failed(again, error)
        finally:
            again.close()

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
    reason = str(error) if own else f"{type(error).__name__}: {error}"[:500]
    log = examination.process.log if examination.process else ""
    trace = "" if own else "".join(traceback.format_exception(error))[-4000:]
    return Verdict(
        examination.candidate.name,
        NotJudged(reason or type(error).__name__, failed=True),
        findings=tuple(examination.findings),
        build_s=examination.build_s,
        total_s=examination.busy_s,
        log=f"{log}\n{trace}".strip(),
    )


def is_too_slow(verdict: Verdict) -> bool:
    """Whether it was ended, by the judge or by the emulator, for nothing but the time that it took."""
    outcome = verdict.outcome
    if isinstance(outcome, LaunchError):
        return any(fault.kind == "runaway-loop" for fault in verdict.faults)
    return isinstance(outcome, TimedOut) and outcome.stage in ("forward", "backward")


def _not_judged(slow: Verdict) -> Verdict:
    """The emulator's slowness is nobody's fault."""
    outcome = slow.outcome
    if not isinstance(outcome, TimedOut):
        return slow
    return replace(slow, outcome=NotJudged(f"{outcome.stage} took over {outcome.limit_s:g} s on the emulator"))


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
