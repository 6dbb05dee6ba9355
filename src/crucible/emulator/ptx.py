"""Inline PTX by its meaning: each instruction becomes a call into `crucible/ptx.h`."""

from __future__ import annotations

from crucible.emulator.faults import NotCovered
from crucible.emulator.tokens import Token


def translate(tokens: list[Token], line: int) -> str:
    """C++ for the inside of `asm(...)`. Raises NotCovered for instructions without a translation."""
    text = "".join(token.text for token in tokens if token.kind == "string").strip('"')
    raise NotCovered(f"inline PTX {text.split()[0] if text.split() else ''}, line {line}")
