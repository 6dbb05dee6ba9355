"""A candidate's text with the lines that findings name."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from crucible.judge.verdict.evidence import Finding
from crucible.syntax import tree_of

AROUND = 2
"""Lines shown before and after one that a finding names."""
WRITTEN = "fused by Crucible"
"""What the docstring of a module says that Crucible wrote."""


@dataclass(frozen=True)
class Source:
    """One file."""

    lines: tuple[str, ...]
    marked: dict[int, tuple[str, ...]]
    """What is said of a line, by its number."""
    plan: str
    """The docstring of a module that Crucible wrote; empty for others."""

    def around(self, line: int) -> tuple[tuple[int, str], ...]:
        """The line and its neighbours, numbered; empty where the file has no such line."""
        if not 0 < line <= len(self.lines):
            return ()
        first = max(1, line - AROUND)
        return tuple(enumerate(self.lines[first - 1 : line + AROUND], first))


def source_of(text: str, findings: Sequence[Finding], line: int = 0) -> Source | None:
    """None where the record holds no text. `line` is the outcome's own, 0 without one."""
    if not text:
        return None
    lines = tuple(text.replace("\r\n", "\n").rstrip("\n").split("\n"))
    marked: dict[int, tuple[str, ...]] = {}
    for finding in findings:
        if 0 < finding.line <= len(lines):
            marked[finding.line] = (*marked.get(finding.line, ()), finding.claim)
    if 0 < line <= len(lines):
        marked.setdefault(line, ("the verdict names this line",))
    return Source(lines, marked, _plan(text))


def _plan(text: str) -> str:
    """The docstring, where it says that Crucible wrote the module. Nothing is run."""
    if WRITTEN.lower() not in text.lower():
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a candidate's invalid escapes are not this reader's concern
            docstring = ast.get_docstring(tree_of(text)) or ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return docstring if WRITTEN.lower() in docstring.lower() else ""
