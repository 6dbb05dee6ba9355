"""Questions to a random number whose answer is known: whether a layer is dropped with a chance of 0.

Models of transformers draw a number for each layer in training, `if torch.rand([]) < self.layerdrop`, also where that
is 0, as it mostly is. The number stays in the graph, so that a seed gives what it gives in eager.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

_COMPARISONS = {
    getattr(where, word.format(name)): getattr(operator, name)
    for name in ("lt", "le", "gt", "ge")
    for where, word in ((torch.Tensor, "__{}__"), (torch.Tensor, "{}"), (torch, "{}"))
}
"""What they compute, by what PyTorch calls."""


class Chances:
    """Numbers of [0, 1) that were drawn, and what is known of comparisons with them, as long as nobody writes to
    either."""

    def __init__(self) -> None:
        self._drawn: list[tuple[torch.Tensor, int]] = []
        self._known: list[tuple[torch.Tensor, int, bool]] = []

    def answer(self, func: Any, args: Sequence[Any]) -> bool | None:
        """To `if`, where a call asks for the truth of a comparison that is known; else None."""
        if func is not torch.Tensor.__bool__:
            return None
        (asked,) = args
        same = (truth for made, version, truth in self._known if made is asked and made._version == version)
        return next(same, None)

    def note(self, func: Any, args: Sequence[Any], made: Any) -> None:
        """A call that was made, and its result."""
        if func is torch.rand and made.numel() == 1:
            self._drawn.append((made, made._version))
        elif func in _COMPARISONS and len(args) == 2 and self._is_drawn(args[0]):
            truth = _always(_COMPARISONS[func], args[1])
            self._known += [] if truth is None else [(made, made._version, truth)]

    def _is_drawn(self, asked: Any) -> bool:
        return any(each is asked and each._version == version for each, version in self._drawn)


def _always(compare: Any, other: Any) -> bool | None:
    """What holds of all numbers of [0, 1)."""
    if not isinstance(other, int | float):
        return None
    is_known = other < 0 or other >= 1 or (other == 0 and compare in (operator.lt, operator.ge))
    return bool(compare(0.5, other)) if is_known else None
