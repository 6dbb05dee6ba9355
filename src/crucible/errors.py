"""Everything that Crucible raises.

CrucibleError
├── MisuseError        what the caller gave cannot be used        (exit code 2)
│   ├── TaskError      the reference file
│   ├── CaptureError   the module that shall become a graph
│   ├── CandidateError the list of candidates (a bad candidate is a verdict, never an error)
│   ├── DeviceError    the device asked for
│   └── RecordError    the run that was asked for
├── KernelError        a kernel was built wrong: a fault of ours    (exit code 3)
├── RewardError        a verdict does not hold what a reward policy needs
├── TuningError        a division that was tried gives wrong results, or does not end (exit code 3)
└── JudgeError         the judge itself failed: nobody's verdict   (exit code 3)
    ├── ProcessLostError one of the judge's own processes ended, or was ended by somebody
    └── StoreError     a run could not be written or read
"""

from __future__ import annotations

import os


class CrucibleError(Exception):
    """The root: catch this to catch all of Crucible's errors."""


class MisuseError(CrucibleError):
    """What the caller gave cannot be used; the message says what to give instead."""


class TaskError(MisuseError):
    """The reference file cannot be loaded, raises, or does not define a usable task."""


class CaptureError(MisuseError):
    """The module does something that no graph can hold; the message names the line and the way out."""


class CandidateError(MisuseError):
    """The list of candidates is unusable: none found, or two of one name."""


class DeviceError(MisuseError):
    """The device asked for is not on this machine."""


class RecordError(MisuseError):
    """There is no such record of a run, or it is of another version."""


class KernelError(CrucibleError):
    """The writer built a kernel that does what it must not (a store out of bounds, say); the message says what."""


class RewardError(CrucibleError):
    """A policy needs what a verdict does not hold, or gives no finite number; the message names both. Never a 0."""


class TuningError(CrucibleError):
    """A division of a written kernel that tuning tried is wrong or hangs; the message names it."""


class JudgeError(CrucibleError):
    """The judge failed (oracle out of memory, worker could not start). Never a candidate's verdict."""

    run: object = None
    """The Run that came of it, with what failed in its `trouble`; None where it had not begun."""


class ProcessLostError(JudgeError):
    """One of the judge's own processes ended, or was ended by somebody; a fresh one may do."""

    def __init__(self, words: str, stage: str = "") -> None:
        """`stage` is the candidate's, where the process that watches it was lost."""
        super().__init__(words)
        self.stage = stage


class StoreError(JudgeError):
    """A record could not be written to disk or read back."""


def own_error(error: Exception) -> JudgeError:
    """What went wrong in the judge's own code, with where, as the failure that it is."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno})" if trace else ""
    failure = JudgeError(f"{type(error).__name__}: {str(error)[:500]}{where}")
    failure.__cause__ = error
    return failure
