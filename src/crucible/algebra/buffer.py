"""Memory between the steps of a computation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Buffer:
    """Memory of its own that a computation needs on the way, contiguous."""

    name: str
    dtype: str
    elements: int
