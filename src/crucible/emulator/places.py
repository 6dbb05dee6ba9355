"""Where CUDA text stands in the Python file that holds it, so that a fault is told by the line its author edits."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from crucible.syntax import tree_of

UNMISTAKABLE = 6
"""Characters of a line that is looked for by its text alone."""


@dataclass(frozen=True)
class Places:
    """A Python file's text, asked for lines of the strings in it."""

    source: str

    def line(self, parts: tuple[str, ...], number: int) -> int:
        """The file's line for line `number` (from 1) of `parts` joined; 0 when it cannot be told."""
        for part in parts:
            own = part.split("\n")
            if number <= len(own):
                return self._in_string(part, own[number - 1].strip(), number) or self._alone(own[number - 1].strip())
            number -= len(own)
        return 0

    def _in_string(self, part: str, text: str, number: int) -> int:
        """By the string constant that is this part; checked, since escapes shift a string's lines."""
        starts = [start for value, start in self.strings if value == part]
        place = starts[0] + number - 1 if starts else 0
        return place if 0 < place <= len(self._lines) and text in self._lines[place - 1] else 0

    def _alone(self, text: str) -> int:
        """By a text that stands once in the file."""
        found = [i for i, line in enumerate(self._lines, 1) if text in line] if len(text) >= UNMISTAKABLE else []
        return found[0] if len(found) == 1 else 0

    @cached_property
    def _lines(self) -> list[str]:
        return self.source.split("\n")

    @cached_property
    def strings(self) -> list[tuple[str, int]]:
        """String constants, each with its first line; none where the file cannot be parsed."""
        try:
            tree = tree_of(self.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
        return [(node.value, node.lineno) for node in nodes if isinstance(node.value, str)]
