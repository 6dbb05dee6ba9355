"""words: text for the terminal, every piece of it made here, so that no candidate writes to the terminal itself."""

from __future__ import annotations

from rich.text import Text

from crucible import legible


def words(*lines: str, style: str = "") -> Text:
    """These lines and no other, with nothing in them that a terminal obeys."""
    return Text("\n".join(map(legible.line, lines)), style=style)
