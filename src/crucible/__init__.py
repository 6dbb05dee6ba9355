"""Crucible fuses PyTorch modules into GPU kernels, and tests any kernel: is it right, is it fast, and why."""

from typing import Any as _Any

from crucible.candidate import Candidate as Candidate
from crucible.errors import CrucibleError as CrucibleError
from crucible.errors import JudgeError as JudgeError
from crucible.errors import MisuseError as MisuseError
from crucible.errors import RewardError as RewardError
from crucible.judge.process.limits import Limits as Limits
from crucible.judge.verdict.verdict import Verdict as Verdict
from crucible.pipeline import judge as judge
from crucible.run import Run as Run
from crucible.task import Task as Task

__all__ = [
    "Candidate",
    "CrucibleError",
    "JudgeError",
    "Limits",
    "MisuseError",
    "RewardError",
    "Run",
    "Task",
    "Verdict",
    "fuse",
    "judge",
    "score",
    "score_sync",
]


def fuse(module: _Any, *inputs: _Any, **options: _Any) -> _Any:
    """A drop-in for `module`, computed by fused kernels, forward and backward; see `crucible.fusing.fuse` for options:
    `emulate`, `tune`, `race`, `cuda_graph`, `check`."""
    from crucible.fusing import fuse as written  # torch is loaded by who asks for it

    return written(module, *inputs, **options)


async def score(reference: _Any, candidate: _Any, **options: _Any) -> Verdict:
    """One candidate's verdict, awaited: text or paths, options of `judge`; see `crucible.scoring.score`."""
    from crucible.scoring import score as scored  # asyncio is loaded by who uses it

    return await scored(reference, candidate, **options)


def score_sync(reference: _Any, candidate: _Any, **options: _Any) -> Verdict:
    """The same for who has no event loop; see `crucible.scoring.score_sync`."""
    from crucible.scoring import score_sync as scored

    return scored(reference, candidate, **options)


def __getattr__(name: str) -> _Any:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata  # 15 ms that few want

    try:
        return metadata.version("crucible-kernels")
    except metadata.PackageNotFoundError:
        return "unknown"  # run from its sources
