"""Pools inside of convolution kernels: windows side by side over the output, a value of each.

The pool's value is that of one product: the chosen element's, or the mean of them all. What follows is a chain of that
product alone, so the whole computation is still a convolution with a chain, over fewer elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from crucible.algebra.expression import Expr, tensor

CHOICE = tensor("choice")
"""What a result reads that is the chosen element's number within its window, the last dim fastest."""
MOST = 64
"""Elements of a window: they are written out one by one."""


SPREAD = "It reads gradients of windows, and spreads them over the windows' elements in shared memory."
"""In a kernel's description, where they are."""


@dataclass(frozen=True)
class Windows:
    """A pool whose windows lie side by side from the first output on; what does not fill the last of them is left."""

    kind: str
    """`max` or `avg`."""
    sizes: tuple[int, ...]
    """Of a window, along each spatial dim."""
    before: Expr
    """What is compared to find a maximum: a chain of the product and of operands that a window's elements share."""

    @property
    def elements(self) -> int:
        """Of a window."""
        return math.prod(self.sizes)

    def outputs(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of what remains of one of [N, C, *spatial]."""
        return (*shape[:2], *(n // size for n, size in zip(shape[2:], self.sizes, strict=True)))


@dataclass(frozen=True)
class Spread:
    """A tensor with an element for each window, in the stead of one over the windows' elements: each of them has its
    window's, or the chosen one alone has it and the others 0. It is dense, and so are the choices."""

    sizes: tuple[int, ...]
    """Of a window, along each spatial dim."""
    choices: str = ""
    """The tensor of the choices, uint8, laid like it; none where all elements have their window's."""


Spreads: TypeAlias = tuple[Spread | None, Spread | None]
"""How what a weight's gradient reads is laid, source and gradient, where one of them is of windows."""
WHOLE: Spreads = (None, None)
