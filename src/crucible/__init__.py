"""Crucible puts GPU kernels to the test: is it right, is it fast, and why."""

from crucible.candidate import Candidate as Candidate
from crucible.errors import CrucibleError as CrucibleError
from crucible.errors import JudgeError as JudgeError
from crucible.errors import MisuseError as MisuseError
from crucible.judge.kept import Limits as Limits
from crucible.judge.verdict import Verdict as Verdict
from crucible.pipeline import judge as judge
from crucible.run import Run as Run
from crucible.task import Task as Task

__all__ = [
    "Candidate",
    "CrucibleError",
    "JudgeError",
    "Limits",
    "MisuseError",
    "Run",
    "Task",
    "Verdict",
    "judge",
]
__version__ = "0.1.0"
