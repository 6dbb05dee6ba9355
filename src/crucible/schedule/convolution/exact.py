"""How float32 is kept by tensor cores, which multiply numbers of fewer bits: which words of both are multiplied.

Of each number there are two words, wherever it lies. Where three products are made of TF32 these are the TF32 that is
nearest, and what is left of it; the same of fp16, by streams that scale (`warpgroup.streams`). Where two are
(`mixed`), the second word is a pair of bfloat16: the nearest to the number, and to what is left of it. A weight has
them the other way round, so that one product, of twice the depth, makes both that are small.
"""

from __future__ import annotations

from typing import NamedTuple

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.fused import MIXED_DEPTH


class Pass(NamedTuple):
    """Products over all taps."""

    of_weight: bool
    """Whether of second words of the weights."""
    of_input: bool
    """And of the input."""

    @property
    def in_halves(self) -> bool:
        """Whether words are pairs of bfloat16."""
        return self.of_weight and self.of_input


ROUNDED = (Pass(False, False),)
THREE = (Pass(True, False), Pass(False, True), *ROUNDED)
"""2^-11 of a product first: tensor cores cut sums off at each addition, and so two in three of these are of a sum that
is 2^-11 of the last. By a model of that P90 is 6.7e-7 off, and 2.0e-6 with a tap's in turn."""
MIXED = (Pass(True, True), *ROUNDED)


def passes(of: Correlation, *, exact: bool) -> tuple[Pass, ...]:
    """In their order."""
    if not exact:
        return ROUNDED
    return MIXED if of.depth >= MIXED_DEPTH else THREE
