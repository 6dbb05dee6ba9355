"""Names that fit a column and stay apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Each in at most `width` columns, its middle left out; whole where two would look alike then."""
    short = [_without_middle(name, width) for name in names]
    taken = Counter(dict.fromkeys(zip(short, names, strict=True)).keys())
    alike = Counter(text for text, _ in taken)
    return [text if alike[text] == 1 else name for text, name in zip(short, names, strict=True)]


def _without_middle(name: str, width: int) -> str:
    if cell_len(name) <= width:
        return name
    head, tail = "", ""
    for first, last in zip(name, reversed(name), strict=True):
        if cell_len(f"{head}{first}…{tail}") > width:
            break
        head += first
        if cell_len(f"{head}…{last}{tail}") > width:
            break
        tail = last + tail
    return f"{head}…{tail}"
