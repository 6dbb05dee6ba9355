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
    pieces, rest = [], line
    while len(rest) > WIDTH:
        fitting = [at for at in _breaks(rest) if len(further) < at <= WIDTH]
        if not fitting:
            break
        pieces.append(rest[: fitting[-1]].rstrip())
        rest = further + rest[fitting[-1] :].lstrip()
    return [*pieces, rest]


def _breaks(line: str) -> Iterator[int]:
    """Places after a comma within brackets, where both languages read on in the next line. A line that was broken
    before begins within brackets."""
    depth = 0 if _opens(line) else 1
    for match in re.finditer(r'"(?:\\.|[^"\\])*"|//|, |[(\[{]|[)\]}]', line):
        if match.group() == "//":  # a comment behind code
            return
        depth += (match.group() in "([{") - (match.group() in ")]}")
        if match.group() == ", " and depth > 0:
            yield match.end()


def _opens(line: str) -> bool:
    """Whether brackets are closed no more often than they are opened."""
    return line.count("(") + line.count("[") + line.count("{") >= line.count(")") + line.count("]") + line.count("}")
