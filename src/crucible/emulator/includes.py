"""Headers of a source's own, which hold device code like it, put where they are included."""

from __future__ import annotations

import re
from pathlib import Path

_OWN = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)


def inlined(text: str, folder: Path, name: str) -> str:
    """The source `name` with each header that lies below `folder` in place of its first include; lines keep their
    numbers, and a header's are told under its own name."""
    return _inlined(text, folder, folder.resolve(), name, set())


def _inlined(text: str, folder: Path, root: Path, name: str, seen: set[Path]) -> str:
    parts, end = [], 0
    for found in _OWN.finditer(text):
        header = next((place.resolve() for place in (folder / found[1], root / found[1]) if place.is_file()), None)
        if header is None or not header.is_relative_to(root):
            continue
        parts.append(text[end : found.start()])
        end = found.end()
        if header in seen:
            continue
        seen.add(header)
        own = header.read_text(encoding="utf-8", errors="replace")
        inside = _inlined(own, header.parent, root, header.name, seen)
        line = text.count("\n", 0, found.end()) + 2  # the next one
        parts.append(f'\n#line 1 "{header.name}"\n{inside}\n#line {line} "{name}"')
    return "".join([*parts, text[end:]])
