"""A chain in front of a convolution: each element goes through it on its way to what tensor cores multiply."""

from __future__ import annotations

from crucible.algebra.expression import Expr
from crucible.algebra.text import text


def note(front: Expr) -> str:
    """In a kernel's description."""
    return f"Each element that is read becomes {text(front)} as it is staged."
