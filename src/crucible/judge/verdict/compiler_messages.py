"""The compiler's own words, found in the output of a build."""

from __future__ import annotations

import re
from pathlib import Path

from crucible.emulator.places import Places

_FAILED = ("Error building extension", "Ninja is required", "Error compiling", "ninja: error")
_FIRST_ERROR = re.compile(
    r"^(?:\w+: )?(?:Error building extension '[^']*': )?"
    r"(?P<where>[^\s:(]+[(:]\d+\)?(?::\d+)?:?)\s*(?:fatal )?error\s*:?\s*(?P<what>.+)$",
    re.MULTILINE,
)
_TOOL_ERROR = re.compile(r"^(?P<line>(?:ptxas|nvcc|nvlink)\b.*?(?:error|fatal)\s*:.*)$", re.MULTILINE)
_LINK_ERROR = re.compile(
    r"^(?P<line>.*(?:undefined reference to|multiple definition of|cannot find -l).*)$", re.MULTILINE
)


_QUOTED = re.compile(r"[‘'\"`]([A-Za-z_]\w*)")
_PLACE = re.compile(r"^(?P<file>[\w.+-]+?)[:(](?P<line>\d{1,9})")
_ADDED_LINES = {"cuda.cu": (0, 3, 4), "main.cpp": (0, 1, 2)}
"""Lines that may stand before a candidate's own in what is compiled: the emulator counts its own alone, `load_inline`
writes `#include <torch/extension.h>`, or three headers of CUDA's."""


def is_build_failure(text: str) -> bool:
    """Whether an exception's text is that of a failed build."""
    return any(mark in text for mark in _FAILED)


def first_error(text: str) -> str:
    """The compiler's first error with file and line, or the linker's, or the first line there is; cut to 1000
    characters."""
    return _first_error(text)[:1000]


def _first_error(text: str) -> str:
    found = _FIRST_ERROR.search(text)
    if found:
        return f"{Path(found['where'].rstrip(':')).name}: {found['what'].strip()}"
    tool = _TOOL_ERROR.search(text) or _LINK_ERROR.search(text)
    lines = text.strip().splitlines() or ["no message"]
    return tool["line"].strip() if tool else lines[0]


def line_in(source: str, error: str) -> int:
    """The line of a candidate's file that `first_error` speaks of; 0 when it cannot be told.

    The compiler counts lines of the text that it was given, which stands in the file as a string. That line is
    believed only where it holds the name that the error quotes first; else the name alone must do, if it stands on
    one line of the file.
    """
    place, quoted = _PLACE.match(error), _QUOTED.search(error)
    name = quoted[1] if quoted else ""
    if place:
        lines = source.split("\n")
        for text, start in _strings(source):
            for added in _ADDED_LINES.get(place["file"], (0,)):
                number = int(place["line"]) - added
                own = text.split("\n")
                here = start + number - 1
                stands = 0 < number <= len(own) and here <= len(lines) and own[number - 1].strip() in lines[here - 1]
                if stands and own[number - 1].strip() and _holds(own[number - 1], name):
                    return here
    found = [i for i, line in enumerate(source.split("\n"), 1) if name and _holds(line, name)]
    return found[0] if len(found) == 1 else 0


def _holds(line: str, name: str) -> bool:
    return not name or re.search(rf"\b{name}\b", line) is not None


def _strings(source: str) -> list[tuple[str, int]]:
    """String constants of several lines, with their first lines; those with kernels first."""
    found = [(value, line) for value, line in Places(source).strings if "\n" in value]
    return sorted(found, key=lambda pair: "__global__" not in pair[0])
