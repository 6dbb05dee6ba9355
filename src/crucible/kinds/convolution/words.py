"""How numbers of a convolution are multiplied, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crucible.algebra.convolution.fused import Convolution
from crucible.schedule.convolution.exact import Pass


@dataclass(frozen=True)
class Words:
    """How numbers are multiplied."""

    about: str
    """In a kernel's description."""


WORDS = {
    "tf32": Words("TF32 (rounded to nearest)"),
    "fp32": Words("fp32 as three products of TF32"),
    "mixed": Words("fp32 as a product of TF32 and one of bfloat16 for what that leaves"),
    "fp16": Words("fp16"),
    "bf16": Words("bf16"),
}

SCALED = "fp32 as three products of fp16, each stage by a power of two in its range"
"""By streams."""


def by_warpgroups(conv: Convolution, passes: Sequence[Pass]) -> str:
    """Of kernels that choose their words themselves."""
    kept = "mixed" if passes[0].in_halves else "fp32"
    return WORDS[kept if conv.keeps_float32 else conv.math].about
