"""What of the emulator's faults NVIDIA's compute-sanitizer can see, and how what it reports compares with them."""

from __future__ import annotations

import re

from crucible.judge.verdict.sanitizer_reports import Report

TOOLS = {
    "out-of-bounds-global": "memcheck",
    "out-of-bounds-shared": "memcheck",
    "out-of-bounds-local": "memcheck",
    "misaligned": "memcheck",
    "launch-limits": "memcheck",
    "unchecked-launch": "memcheck",
    "uninitialised-global": "initcheck",
    "race-shared": "racecheck",
    "missing-syncwarp": "racecheck",
    "divergent-barrier": "synccheck",
    "absent-lanes": "synccheck",
}
"""Which tool could see a kind of fault."""

HANGS = ("deadlock", "runaway-loop")
"""Run without a tool: a GPU hangs."""
MAY_HANG = ("divergent-barrier",)
"""In conditional code that threads take differently `__syncthreads()` "is likely to hang or produce unintended side
effects" (CUDA C++ Programming Guide, synchronization functions)."""
MAY_DIE = ("index-overflow",)
"""Run without a tool: an access by a wrapped index is an illegal one where it meets no memory."""
CANNOT_SEE = {
    "race-global": "racecheck watches shared memory only",
    "uninitialised-shared": "initcheck of 2025.3 watches global memory only",
    "index-overflow": "no tool watches arithmetic",
    "never-ran": "no tool knows which kernels were meant to run",
    "never-reached": "no tool knows which barriers were meant to be reached",
    "absent-lanes": "synccheck checks `__syncthreads` and `__syncwarp`, not shuffles, votes and matches",
}
"""Why a kind is not seen; what of `absent-lanes` is a `__syncwarp` with a mask that lacks its caller would be.

The manual (docs.nvidia.com/compute-sanitizer): racecheck "only supports detecting accesses to on-chip shared memory";
synccheck is for "`__syncthreads()` and `__syncwarp()` intrinsics and their Cooperative Groups API counterparts", and
"will not detect cases where not all the threads declared in the mask parameter reach the `__syncwarp()`".
"""
_IN_REGISTERS = "cannot see it: the array is in registers, and no local memory is accessed"
UNSEEN = {
    # 0 bytes of stack frame by nvcc 13.0 for sm_90; an index becomes comparisons.
    "out-of-bounds-local_lookup_table": _IN_REGISTERS,
    "out-of-bounds-local_ring_before_start": _IN_REGISTERS,
    "out-of-bounds-local_top_list": _IN_REGISTERS,
    # nvcc 13.0 for sm_90 lays the array at 0x400 and reads 0x3fc; "CUDA reserves 1 KB of shared memory per thread
    # block" (Hopper tuning guide), and memcheck says nothing of reads there.
    "out-of-bounds-shared_negative": "cannot see it: it reads the 1 KB before a block's arrays that CUDA reserves",
}
"""Why a tool was silent about single files, as the verdict has it."""

_ALIKE = {
    "missing-syncwarp": {"race-shared"},
    "absent-lanes": {"divergent-barrier", "absent-lanes"},
    "unchecked-launch": {"launch-limits"},
}
"""What a tool calls the kinds that it has no name of its own for."""


def corpus_kernel(report: Report) -> str:
    """File of the corpus by name, from the namespace around the kernel; empty when no kernel is named."""
    found = re.search(r"\bin_(\w+)::", report.text)
    return found[1] if found else ""


def seen(found: list[Report], kind: str) -> list[Report]:
    """The reports that are what the emulator calls `kind`."""
    return [report for report in found if report.kind in _ALIKE.get(kind, {kind})]


def verdict(kind: str, found: list[Report], *, name: str = "", same_line: bool = False, ended: str = "") -> str:
    """How a run on a GPU compares with the planted fault of `kind` in the file `name`.

    `ended`: "hung", "died" (of the GPU's error, the whole process), "failed" (for another reason), or empty.
    """
    if seen(found, kind):
        return "agrees" + ", same line" * same_line + ", then it hangs" * (ended == "hung")
    if found:
        return f"DIFFERS: {found[0].heading}"
    if ended:
        return _by_end(kind, ended)
    if kind in HANGS:
        return "DIFFERS: it ends"
    return UNSEEN.get(name) or (f"cannot see it: {CANNOT_SEE[kind]}" if kind in CANNOT_SEE else "DIFFERS: silent")


def _by_end(kind: str, ended: str) -> str:
    if ended == "died" and kind in MAY_DIE:
        return "agrees: it dies"
    if ended != "hung":
        return "DID NOT RUN"
    tool = f" under {TOOLS[kind]}" if kind in TOOLS else ""
    return f"agrees: it hangs{tool}" if kind in (*HANGS, *MAY_HANG) else f"DIFFERS: it hangs{tool}"
