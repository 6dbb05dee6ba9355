"""SARIF 2.1.0: what is wrong and where, for code scanning of pull requests and for editors.

Whatever is named or said here may be a candidate's: texts go through `legible`, paths become addresses.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crucible import legible

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = ("error", "warning", "note", "none")
ROOT = "%SRCROOT%"
"""What relative addresses begin at, by the name that code scanning knows."""
_NO_CHARACTERS = re.compile(r"[\ufdd0-\ufdef\ufffe\uffff]")


@dataclass(frozen=True)
class Location:
    """A place that a result is about, or that has to do with it."""

    file: str | Path
    line: int = 0
    """From 1; 0 for the file as a whole."""
    message: str = ""
    """What is there, where it is not the result's own place."""


@dataclass(frozen=True)
class Result:
    """One thing that was found."""

    rule: str
    """`race-shared`, `does-not-build`, ...: what people filter by."""
    level: str
    """`error`, `warning`, `note` or `none`."""
    message: str
    file: str | Path
    line: int = 0
    """From 1; 0 for the file as a whole."""
    related: tuple[Location, ...] = ()
    """The other side of a race, the kernel's launch, ..."""


@dataclass(frozen=True)
class Trouble:
    """What went wrong around the results: they may not be all there is."""

    message: str
    level: str = "error"
    """Below `error` the tool did what it was asked for all the same."""


def sarif(
    results: Sequence[Result],
    *,
    trouble: Sequence[Trouble] = (),
    rules: Mapping[str, str] | None = None,
    version: str = "",
    root: Path | None = None,
) -> str:
    """A log with one run, as text that ends in a newline.

    Args:
        results: in the order in which they shall be shown.
        trouble: what went wrong beside them; an `error` says that the run as a whole did not succeed.
        rules: what each rule means, in words; one that is not in it is described by its own id.
        version: Crucible's; left out where it is not known.
        root: files below it are named relative to it, as code scanning wants them, others absolutely; None for the
            current folder.
    """
    found = list(dict.fromkeys(result.rule for result in results))
    base = Path(os.path.abspath(root or Path()))
    driver = {"name": "Crucible", "rules": [_rule(rule, (rules or {}).get(rule, "")) for rule in found]}
    run = {
        "tool": {"driver": {**driver, "version": version} if version else driver},
        "invocations": [_invocation(trouble)],
        "columnKind": "unicodeCodePoints",
        "results": [_result(result, found.index(result.rule), base) for result in results],
    }
    return json.dumps({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=1, allow_nan=False) + "\n"


def _rule(rule: str, words: str) -> dict[str, Any]:
    return {"id": _text(rule), "shortDescription": {"text": _text(words or rule.replace("-", " "))}}


def _invocation(trouble: Sequence[Trouble]) -> dict[str, Any]:
    notes = [{"level": _level(one.level), "message": {"text": _text(one.message)}} for one in trouble]
    whole = all(one.level != "error" for one in trouble)
    return {"executionSuccessful": whole, **({"toolExecutionNotifications": notes} if notes else {})}


def _result(result: Result, index: int, base: Path) -> dict[str, Any]:
    related = [{"id": number, **_location(place, base)} for number, place in enumerate(result.related)]
    return {
        "ruleId": _text(result.rule),
        "ruleIndex": index,
        "level": _level(result.level),
        "message": {"text": _text(result.message)},
        "locations": [_location(Location(result.file, result.line), base)],
        **({"relatedLocations": related} if related else {}),
    }


def _location(place: Location, base: Path) -> dict[str, Any]:
    region = {"region": {"startLine": place.line}} if place.line > 0 else {}
    words = {"message": {"text": _text(place.message)}} if place.message else {}
    return {"physicalLocation": {"artifactLocation": _artifact(place.file, base), **region}, **words}


def _artifact(file: str | Path, base: Path) -> dict[str, Any]:
    """Its address: relative to the root where it is below that."""
    path = Path(os.path.abspath(base / file))
    if path.is_relative_to(base) and path != base:
        return {"uri": _quoted(str(path.relative_to(base))), "uriBaseId": ROOT}
    return {"uri": f"file://{_quoted(str(path))}"}


def _quoted(path: str) -> str:
    try:
        return quote(os.fsencode(path))
    except UnicodeEncodeError:  # half of a surrogate pair that no file system gave
        return quote(path, errors="replace")


def _level(level: str) -> str:
    """Raises ValueError for one that SARIF does not know."""
    if level not in LEVELS:
        raise ValueError(f"level {level!r}: one of {', '.join(LEVELS)}")
    return level


def _text(text: str) -> str:
    """Never empty, and without links: a viewer makes one of `[words](address)`."""
    shown = _NO_CHARACTERS.sub(lambda found: f"[U+{ord(found[0]):04X}]", legible.lines(text))
    return shown.replace("](", "] (") or "-"
