"""Long lines of Python or C++ on several."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

WIDTH = 110


def folded(text: str) -> str:
    """The text with lines of at most WIDTH where they can be broken: between the items of brackets, and in comments
    of C++ that have a line of their own. Strings stay whole."""
    return "\n".join(piece for line in text.split("\n") for piece in _folded(line))


def _folded(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    if line.lstrip().startswith("// "):
        words = line.strip().removeprefix("// ")
        return textwrap.wrap(words, WIDTH, initial_indent=f"{indent}// ", subsequent_indent=f"{indent}// ")
    further = indent + " " * (8 if line.endswith((":", "{")) else 4)  # a body follows, further in than what is broken
    pieces: list[str] = []
    rest = line
    while len(rest) > WIDTH:
        fitting = [place for place in _breaks(rest, bool(pieces)) if len(further) < place[1] <= WIDTH]
        if not fitting:
            break
        _, at = max(fitting)
        pieces.append(rest[:at].rstrip())
        rest = further + rest[at:].lstrip()
    return [*pieces, rest]


def _breaks(line: str, is_within: bool) -> Iterator[tuple[bool, int]]:
    """Places within brackets where both languages read on in the next line: after a comma, or worse, where arguments
    begin. A line that was broken before begins within brackets."""
    depth = 1 if is_within or not _opens(line) else 0
    for match in re.finditer(r'"(?:\\.|[^"\\])*"|//|, |[(\[{]|[)\]}]', line):
        if match.group() == "//":  # a comment behind code
            return
        depth += (match.group() in "([{") - (match.group() in ")]}")
        if match.group() in (", ", "(") and depth > 0:
            yield match.group() == ", ", match.end()


def _opens(line: str) -> bool:
    """Whether brackets are closed no more often than they are opened."""
    return line.count("(") + line.count("[") + line.count("{") >= line.count(")") + line.count("]") + line.count("}")
