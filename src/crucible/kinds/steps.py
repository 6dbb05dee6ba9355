"""Steps: a computation as kernels and programs in a row."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.algebra.buffer import Buffer
from crucible.algebra.program import Program
from crucible.print.written import Lowered


@dataclass(frozen=True)
class Steps:
    """A computation in steps, launched in this order on one stream."""

    steps: tuple[Lowered | Program, ...]
    """Programs have no sums; they read its tensors and buffers."""
    buffers: tuple[Buffer, ...]
    """What one step writes and later ones read."""
    results: tuple[str, ...]
    """The tensors that are there in the end."""
