"""What NVIDIA's compute-sanitizer reports, read from its text, which is that of 2025.3; and the records of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

LONGEST_TEXT = 1000
MOST_REPORTS = 20
"""Of one tool, each of another kernel, line or kind."""
Place = tuple[int, int, int]
_REFUSED = re.compile(
    r"Program hit cudaError(InvalidConfiguration|InvalidValue|LaunchOutOfResources)\b.*cudaLaunchKernel"
)
_HOST_API = re.compile(r"Host API .*memory access")
"""Copies between host and GPU: `Host API memory access error at host access to 0x... of size N bytes`, and in the next
line whether that memory was uninitialised."""
_HARMLESS = re.compile(r"\w+ SUMMARY|Program hit |Warning: Maximum number of hazards reached")
"""What is no report: the end, API calls that fail after another error, or inside PyTorch and are handled there, and a
limit of the tool's own."""
_HEADINGS = (
    (re.compile(r"(?:Potential )?[Ii]nvalid __(global|shared|local)__ "), "out-of-bounds-{}"),
    (re.compile(r"Uninitialized __(global|shared)__ memory read"), "uninitialised-{}"),
    (
        re.compile(r"(?:Error|Warning): (?:Race reported|.*hazard detected)|Potential \w+ hazard detected"),
        "race-shared",
    ),
    (re.compile(r"Barrier error detected\. Invalid arguments"), "absent-lanes"),
    (re.compile(r"Barrier error detected"), "divergent-barrier"),
    (re.compile(r"Deadlock detected"), "deadlock"),
    (_REFUSED, "launch-limits"),
)
_FRAME = re.compile(
    r"(?P<what>\bat|\baccess at|Device Frame:)\s*(?P<function>.+?)\+0x[0-9a-f]+"
    r"(?: in (?P<file>\S+?):(?P<line>\d+))?(?=\s|$)"
)
_THREAD = re.compile(r"by thread \((\d+),\s*(\d+),\s*(\d+)\) in block \((\d+),\s*(\d+),\s*(\d+)\)")
_OF_THE_SOURCE = (".cu", ".cuh", ".py")
_CAST = re.compile(r"\([a-z][a-z ]*\)(?=-?\d)")


@dataclass(frozen=True)
class Report:
    """One error of compute-sanitizer."""

    kind: str
    """As the emulator calls it; empty for what it has no name for, such as an error of the tool itself."""
    heading: str
    text: str = ""
    """All its lines but the host's."""
    kernel: str = ""
    """Without what it returns and takes; empty when none is named."""
    file: str = ""
    """Of the first place in a source file of CUDA's or Python's; empty, and 0, without `-lineinfo`."""
    line: int = 0
    lines: tuple[int, ...] = ()
    """Of all such places: a race has two or more."""
    block: Place | None = None
    """None where the tool does not say, as of races and refused launches."""
    thread: Place | None = None
    count: int = 1
    """Reports of the same kind, kernel and lines."""
    python_line: int = 0
    """The same line in the candidate's file, 0 when it cannot be told."""


@dataclass(frozen=True)
class ToolRun:
    """What one tool said of a candidate."""

    tool: str
    reports: tuple[Report, ...]
    ended: str = ""
    """How it ended before its summary; empty where it came to that."""


@dataclass(frozen=True)
class Sanitized:
    """A candidate under all the tools."""

    runs: tuple[ToolRun, ...]


@dataclass(frozen=True)
class NotSanitized:
    """It did not run under compute-sanitizer, and why."""

    reason: str


NOT_SANITIZED = NotSanitized("not asked for")


def reports(output: str) -> list[Report]:
    """The errors in an output: each is a run of lines behind `=========`, up to an empty one."""
    found: list[Report] = []
    block: list[str] = []
    for line in [*output.splitlines(), "========="]:
        told = re.match(r"=========(?! COMPUTE-SANITIZER)\s?(.*)", line)
        if told and told[1].strip() and not (block and not told[1].startswith(" ") and _kind(told[1])):
            block.append(told[1])
            continue
        found += [_report(block)] if block and (_kind(block[0]) or not _HARMLESS.match(block[0])) else []
        block = [told[1]] if told and told[1].strip() else []
    return found


def merged(found: Sequence[Report]) -> tuple[Report, ...]:
    """Each kind of error at each line once, with its count: every thread that does it is reported."""
    by: dict[tuple[object, ...], Report] = {}
    for report in found:
        key = (report.kind, report.kernel, report.file, report.lines, report.heading if not report.kernel else "")
        by[key] = replace(by[key], count=by[key].count + 1) if key in by else report
    return tuple(by.values())[:MOST_REPORTS]


def short_name(function: str) -> str:
    """`histogram<4>` of `void ns::histogram<(int)4>(const int *, int)`."""
    depth, space, colons = 0, 0, 0
    end = len(function)
    for i, letter in enumerate(function):
        depth += (letter in "<[") - (letter in ">]")
        if depth == 0 and letter == "(":
            if function[:i].endswith("operator ") or function.startswith("(anonymous namespace)", i):
                continue
            end = i
            break
        if depth == 0 and letter == " ":
            space = i + 1
        if depth == 0 and function.startswith("::", i):
            colons = i + 2
    return _CAST.sub("", function[max(space, colons) : end]).strip()


def _kind(heading: str) -> str:
    for pattern, kind in _HEADINGS:
        if match := pattern.match(heading):
            return kind.format(*match.groups())
    return ""


def _report(block: list[str]) -> Report:
    device = [line for line in block if "Host Frame" not in line]
    text = "\n".join(line.strip() for line in device)
    kind = "misaligned" if "is misaligned" in text else _kind(block[0])
    if _HOST_API.match(block[0]):
        kind = "uninitialised-global" if re.search("[Uu]ninitialized", text) else "out-of-bounds-global"
    frames = [match for line in device for match in _FRAME.finditer(line)]
    outer = [frame for frame in frames if frame["what"].startswith("Device")] or frames[:1]
    places = [(f["file"], int(f["line"])) for f in frames if f["file"] and f["file"].endswith(_OF_THE_SOURCE)]
    numbers = _THREAD.search(text)
    of = tuple(map(int, numbers.groups())) if numbers else None
    return Report(
        kind,
        block[0],
        text[:LONGEST_TEXT],
        short_name(outer[-1]["function"]) if outer else "",
        places[0][0] if places else "",
        places[0][1] if places else 0,
        tuple(line for _, line in places),
        (of[3], of[4], of[5]) if of else None,
        (of[0], of[1], of[2]) if of else None,
    )
