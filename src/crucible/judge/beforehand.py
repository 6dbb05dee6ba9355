"""What can be said of a candidate before anything of it runs, from its text and this machine."""

from __future__ import annotations

import re

from crucible import hardware
from crucible.candidate import Candidate
from crucible.hardware import Device
from crucible.judge.verdict.verdict import DoesNotImport, NotJudged, Outcome

TRITON = "3.6.0"
"""The version with which this was developed; later ones work as well (3.9.0 was tried)."""


def known_without_running(candidate: Candidate, device: Device) -> Outcome | None:
    """What can be said of a candidate from its text and this machine alone."""
    fault = candidate.fault()
    if fault:
        return DoesNotImport(fault)
    if not re.search(r"\bModelNew\b", candidate.source):
        return DoesNotImport("it defines no class ModelNew")
    language = candidate.kernel_language
    if language is not None and not hardware.has_distribution(language.distribution):
        return NotJudged(f"needs {language.distribution} (pip install {language.distribution})")
    if language is not None and device.kind == "cpu":
        return NotJudged(
            f"written in {language.words}; there is no GPU here to run it, and the emulator does not know it"
        )
    if device.kind == "cpu" and candidate.language == "triton" and not hardware.has_triton():
        return NotJudged(f"Triton is not installed (pip install triton=={TRITON}), and there is no GPU here")
    if device.kind == "cpu" and candidate.language == "triton" and not hardware.cxx():
        return NotJudged("written in Triton; there is no GPU here to run it, and no g++ for the emulator")
    if device.kind == "cpu" and candidate.language == "cuda" and not hardware.cxx() and not hardware.nvcc():
        return NotJudged("CUDA C++; there is no GPU here to run it, and neither g++ for the emulator nor nvcc")
    return None


def is_timed_here(candidate: Candidate, device: Device) -> bool:
    """Whether this machine can run the candidate as it is meant to run, not only emulate or compile it."""
    without_gpu = (device.kind == "cpu" and candidate.is_for_gpu) or runs_on_emulator(candidate, device)
    return not without_gpu and known_without_running(candidate, device) is None


def runs_on_emulator(candidate: Candidate, device: Device) -> bool:
    """Whether it is CUDA C++ or Triton, or has CUDA graphs or streams, which only the emulator can run here."""
    without_gpu = device.kind == "cpu" and candidate.acts_on_gpu and bool(hardware.cxx())
    return without_gpu and known_without_running(candidate, device) is None
