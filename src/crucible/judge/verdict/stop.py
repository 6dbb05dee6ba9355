"""Stop: the verdict is known; and which verdict an exception in the candidate's process stands for."""

from __future__ import annotations

import re
from typing import Any

from crucible.judge.verdict.compiler_messages import first_error
from crucible.judge.verdict.verdict import (
    Cheated,
    DoesNotBuild,
    IllegalAccess,
    LaunchError,
    NotJudged,
    Outcome,
    OutOfMemory,
    Raises,
)

_LOST_CONTEXT = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
    "device-side assert",
)
_REFUSED_LAUNCH = (
    "invalid configuration",
    "invalid argument",
    "too many resources",
    "no kernel image",
    "invalid device function",
    "left unchecked",
    "launch timed out",
    "too many blocks",
)
_IN_ALL_OF_CUDAS = "to enable device-side assertions"
"""PyTorch's advice below each error of CUDA's."""
_WANTS_A_GPU = (
    "Torch not compiled with CUDA enabled",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "CUDA driver",
)


_CPU_LACKS = re.compile(r"^NotImplementedError: \S+ not implemented for '(BFloat16|Half)'")
"""PyTorch's own words, and only of its CPU kernels: CUDA's have these dtypes."""


class Stop(Exception):
    """The verdict is known; nothing further needs to run."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.words)
        self.outcome = outcome


def stop_if_raised(reply: dict[str, Any], stage: str) -> None:
    """Raises Stop with the outcome that an exception in the candidate's process stands for."""
    if reply.get("forked"):
        raise Stop(Cheated("forked", f"it forked its process in {stage}"))
    if "raised" not in reply:
        return
    message = _at_line(reply)
    if reply.get("not_covered"):
        raise Stop(NotJudged(f"{reply['not_covered']} is not covered by the emulator, and there is no GPU here"))
    if any(mark in reply["message"] for mark in _WANTS_A_GPU):
        raise Stop(NotJudged(f"it asks for a GPU, and there is none here ({message})"))
    if _CPU_LACKS.search(reply["message"]):
        raise Stop(NotJudged(f"PyTorch lacks it on a CPU, and there is no GPU here ({message})"))
    if reply["out_of_memory"]:
        raise Stop(OutOfMemory(message))
    if reply["build_failure"]:
        raise Stop(DoesNotBuild(first_error(reply["message"])))
    said = reply["message"].replace(_IN_ALL_OF_CUDAS, "")
    if any(mark in said for mark in _LOST_CONTEXT):
        raise Stop(IllegalAccess(message))
    if any(mark in said for mark in _REFUSED_LAUNCH) and "CUDA" in said:
        raise Stop(LaunchError(message))
    raise Stop(Raises(stage, message, reply["line"]))


def _at_line(reply: dict[str, Any]) -> str:
    line = f"line {reply['line']}: " if reply["line"] else ""
    return line + one_line(reply["message"])


def one_line(message: str) -> str:
    """The first line of a message that says something, cut to 300 characters."""
    first = next((line for line in message.splitlines() if line.strip()), "")
    return first if len(first) <= 300 else first[:300] + "..."
