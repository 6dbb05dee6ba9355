"""How numbers of a convolution are multiplied, and what texts that stage them call. A word is 4 bytes: a float32, or
two neighbouring channels of a half type."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.target.cuda import INCLUDES
from crucible.target.sm80 import RAW, ROUNDED


@dataclass(frozen=True)
class Words:
    """How numbers are multiplied."""

    convert: str
    """Of the function from an element to what shared memory holds of it."""
    preamble: tuple[str, ...]
    about: str
    """In a kernel's description."""


WORDS = {
    "tf32": Words("rounded", (ROUNDED,), "TF32 (rounded to nearest)"),
    "fp32": Words("", (), "fp32 as three products of TF32"),  # kernels of the IR alone
    "fp16": Words("raw", (INCLUDES["float16"], RAW), "fp16"),
    "bf16": Words("raw", (INCLUDES["bfloat16"], RAW), "bf16"),
}
