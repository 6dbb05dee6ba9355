"""What `crucible check` found, as lines, JSON and SARIF."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from crucible import legible
from crucible.emulator.faults import Fault
from crucible.judge.checking import Checked
from crucible.report.sarif import Location, Result, sarif

SCHEMA = "crucible.check/1"
ENDED = "did-not-run"
"""The rule of a program that ended before its end."""


def lines(checked: Checked, shown: Path) -> list[str]:
    """A line a result, `FILE:LINE: rule: words`, and one that sums up; `shown` is the file as the user named it."""
    found = [f"{result.file}:{result.line}: {legible.line(result.message)}" for result in results(checked, shown)]
    counts = f"{_count(len(checked.launched), 'kernel')} ran, {_count(len(found), 'finding')}"
    return [*found, f"{shown}: {'clean' if checked.is_clean else 'not clean'}; {counts}"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def results(checked: Checked, shown: Path) -> Iterator[Result]:
    """Errors first as they were found, then why it ended where no fault says that already."""
    for fault in checked.faults:
        level = "error" if fault.convicts else "note"
        file, line = _place(fault.file, fault.line, fault.python_line, shown)
        yield Result(fault.kind, level, fault.words, file, line, tuple(_other(fault, shown)))
    if checked.raised and not any(fault.fatal for fault in checked.faults):
        yield Result(ENDED, "error", f"{ENDED}: {checked.raised}", shown, checked.line)


def to_json(checked: Checked, shown: Path) -> str:
    """One object, with what the SARIF has and the program's own output."""
    data = {
        "schema": SCHEMA,
        "file": str(shown),
        "clean": checked.is_clean,
        "raised": checked.raised,
        "launched": checked.launched,
        "faults": [fault.to_json() | {"words": fault.words} for fault in checked.faults],
        "log": checked.log,
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def to_sarif(checked: Checked, shown: Path, version: str) -> str:
    return sarif(list(results(checked, shown)), version=version)


def _place(file: str, line: int, python_line: int, shown: Path) -> tuple[Path, int]:
    """Of the file as a code host has it; a header, or a source that Python loads, lies beside it."""
    if python_line or file == shown.name:
        return shown, python_line or line
    beside = shown.parent / Path(file).name
    return (beside, line) if beside.is_file() else (shown, 0)


def _other(fault: Fault, shown: Path) -> Iterator[Location]:
    if fault.other_block is not None and (fault.other_line or fault.other_python_line):
        file, line = _place(fault.file, fault.other_line, fault.other_python_line, shown)
        yield Location(file, line, "the other side")
