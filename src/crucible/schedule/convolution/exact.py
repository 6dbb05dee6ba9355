"""How float32 is kept by tensor cores, which multiply numbers of fewer bits: which words of both are multiplied.

Of each number there are two words, wherever it lies: the TF32 that is nearest, and what is left of it; or the same of
fp16, by streams that scale (`warpgroup.streams`).
"""

from __future__ import annotations

from typing import NamedTuple


class Pass(NamedTuple):
    """Products over all taps."""

    of_weight: bool
    """Whether of second words of the weights."""
    of_input: bool
    """And of the input."""


ROUNDED = (Pass(False, False),)
THREE = (Pass(True, False), Pass(False, True), *ROUNDED)
"""2^-11 of a product first: tensor cores cut sums off at each addition, and so two in three of these are of a sum that
is 2^-11 of the last. By a model of that P90 is 6.7e-7 off, and 2.0e-6 with a tap's in turn."""


def passes(*, exact: bool) -> tuple[Pass, ...]:
    """In their order."""
    return THREE if exact else ROUNDED
