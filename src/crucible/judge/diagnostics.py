"""The compiler's own words, found in the output of a build."""

from __future__ import annotations

import re
from pathlib import Path

_FAILED = ("Error building extension", "Ninja is required", "Error compiling", "ninja: error")
_FIRST_ERROR = re.compile(
    r"^(?P<where>[^\s:(]+[(:]\d+\)?(?::\d+)?:?)\s*(?:fatal )?error\s*:?\s*(?P<what>.+)$", re.MULTILINE
)
_TOOL_ERROR = re.compile(r"^(?P<line>(?:ptxas|nvcc|nvlink)\b.*?(?:error|fatal)\s*:.*)$", re.MULTILINE)
_LINK_ERROR = re.compile(
    r"^(?P<line>.*(?:undefined reference to|multiple definition of|cannot find -l).*)$", re.MULTILINE
)


def is_build_failure(text: str) -> bool:
    """Whether an exception's text is that of a failed build."""
    return any(mark in text for mark in _FAILED)


def first_error(text: str) -> str:
    """The compiler's first error with file and line, or the linker's, or the first line there is."""
    found = _FIRST_ERROR.search(text)
    if found:
        return f"{Path(found['where'].rstrip(':')).name}: {found['what'].strip()}"
    tool = _TOOL_ERROR.search(text) or _LINK_ERROR.search(text)
    lines = text.strip().splitlines() or ["no message"]
    return tool["line"].strip() if tool else lines[0]
