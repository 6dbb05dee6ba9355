"""What NVIDIA's compute-sanitizer reports, and what of the emulator's faults it can see. Its text is that of 2025.3."""

from __future__ import annotations

import re
from dataclasses import dataclass

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

CANNOT_SEE = {
    "race-global": "racecheck watches shared memory only",
    "uninitialised-shared": "initcheck watches global memory only",
    "index-overflow": "no tool watches arithmetic",
    "never-ran": "no tool knows which kernels were meant to run",
    "never-reached": "no tool knows which barriers were meant to be reached",
    "deadlock": "a GPU hangs",
    "runaway-loop": "a GPU hangs",
}
HANGS = ("deadlock", "runaway-loop")

_ALIKE = {
    "missing-syncwarp": {"race-shared"},
    "absent-lanes": {"divergent-barrier", "absent-lanes"},
    "unchecked-launch": {"launch-limits"},
}
"""What a tool calls the kinds that it has no name of its own for."""

_REFUSED = re.compile(
    r"Program hit cudaError(InvalidConfiguration|InvalidValue|LaunchOutOfResources)\b.*cudaLaunchKernel"
)
_HEADINGS = (
    (re.compile(r"(?:Potential )?[Ii]nvalid __(global|shared|local)__ "), "out-of-bounds-{}"),
    (re.compile(r"Uninitialized __(global|shared)__ memory read"), "uninitialised-{}"),
    (re.compile(r"Host API uninitialized memory access"), "uninitialised-global"),
    (
        re.compile(r"(?:Error|Warning): (?:Race reported|.*hazard detected)|Potential \w+ hazard detected"),
        "race-shared",
    ),
    (re.compile(r"Barrier error detected\. Invalid arguments"), "absent-lanes"),
    (re.compile(r"Barrier error detected"), "divergent-barrier"),
    (re.compile(r"Deadlock detected"), "deadlock"),
    (_REFUSED, "launch-limits"),
)


@dataclass(frozen=True)
class Report:
    """One error of compute-sanitizer."""

    kind: str
    """As the emulator calls it; empty for what it has no name for, such as an error of the tool itself."""
    kernel: str
    """File of the corpus by name, from the namespace around the kernel; empty when no kernel is named."""
    lines: tuple[int, ...]
    heading: str


def reports(output: str) -> list[Report]:
    """The errors in an output: each is a run of lines behind `=========`, up to an empty one."""
    found, block = [], []
    for line in [*output.splitlines(), "========="]:
        told = re.match(r"=========\s?(.*)", line)
        if told and told[1].strip() and not (block and not told[1].startswith(" ") and _kind(told[1])):
            block.append(told[1])
            continue
        found += [_report(block)] if block and _is_error(block[0]) else []
        block = [told[1]] if told and told[1].strip() else []
    return found


def seen(found: list[Report], kind: str) -> list[Report]:
    """The reports that are what the emulator calls `kind`."""
    return [report for report in found if report.kind in _ALIKE.get(kind, {kind})]


def verdict(kind: str, found: list[Report], lines: set[int], *, hung: bool) -> str:
    """How a run under the tools compares with a planted fault of `kind` at `lines`."""
    if kind in HANGS:
        return "agrees: it hangs" if hung else "DIFFERS: it ends"
    if kind in CANNOT_SEE:
        return f"cannot see it: {CANNOT_SEE[kind]}"
    if hung:
        return "hung under the tool"
    same = seen(found, kind)
    if not same:
        return "DIFFERS: silent" if not found else f"DIFFERS: {found[0].heading}"
    return "agrees, same line" if lines & {line for report in same for line in report.lines} else "agrees"


def _is_error(heading: str) -> bool:
    """Not so the API calls that fail after another error, or inside PyTorch and are handled there."""
    return bool(_kind(heading)) or heading.startswith(("Error", "Invalid", "Fatal", "Internal", "Target application"))


def _kind(heading: str) -> str:
    for pattern, kind in _HEADINGS:
        if match := pattern.match(heading):
            return kind.format(*match.groups())
    return ""


def _report(block: list[str]) -> Report:
    text = "\n".join(block)
    kind = "misaligned" if "is misaligned" in text else _kind(block[0])
    device = [line for line in block if "Host Frame" not in line]
    names = re.findall(r"\bin_(\w+)::", "\n".join(device))
    numbers = re.findall(r"\bin \S*\.cu:(\d+)", "\n".join(device))
    return Report(kind, names[0] if names else "", tuple(map(int, numbers)), block[0])
