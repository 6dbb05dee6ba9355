"""Influence: which part of the output one element of a weight reaches. A kernel that reads a weight in another order
than the reference does sends it to another channel."""

from __future__ import annotations

from collections.abc import Callable

import torch

PLACE = (0, 1)
"""The element (with all that lies below it) that is moved: read the other way round it is another one."""
MOST = 0.5
"""Of the whole change, what one index must have for the change to be there and nowhere else."""

TIMES = 4
"""And this many times what it would have of a change that is everywhere: in two batch items one always has half."""


def moved(weight: torch.Tensor) -> torch.Tensor:
    """A copy in which one element of the leading two dimensions is larger by three times the weight's rms."""
    changed = weight.clone()
    changed[PLACE] += 3 * float(weight.float().pow(2).mean().sqrt()) + 1e-3
    return changed


def can_be_moved(weight: torch.Tensor) -> bool:
    return weight.is_floating_point() and weight.dim() > 1 and min(weight.shape[:2]) > 1


def reached(answer: Callable[[torch.Tensor], torch.Tensor], weight: torch.Tensor) -> list[int]:
    """For each dimension of `answer(weight)` the index at which moving the weight shows; -1 where that is none."""
    before = answer(weight).detach().to("cpu", torch.float64)
    after = answer(moved(weight)).detach().to("cpu", torch.float64)
    return _peaks((after - before).abs().nan_to_num(0.0)) if before.shape == after.shape else []


def _peaks(change: torch.Tensor) -> list[int]:
    total = float(change.sum())
    peaks = []
    for dim in range(change.dim()):
        share = change.sum([d for d in range(change.dim()) if d != dim]) if change.dim() > 1 else change
        top = int(share.argmax()) if share.numel() else 0
        least = total * max(MOST, TIMES / max(1, share.numel()))
        peaks.append(top if 0 < least < float(share.max()) else -1)
    return peaks
