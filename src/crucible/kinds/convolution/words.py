"""How numbers of a convolution are multiplied, in words."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.algebra.convolution.fused import Convolution


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


def by_warpgroups(conv: Convolution) -> str:
    """By those that keep float32 in one way."""
    return WORDS["fp32" if conv.keeps_float32 else conv.math].about
