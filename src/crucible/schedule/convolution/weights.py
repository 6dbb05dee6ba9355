"""The gradient of a weight, by warps or by warpgroups: which divisions it may take."""

from __future__ import annotations

from typing import TypeAlias

from crucible.algebra.convolution.fused import EXACT
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.questions import NO_FRONTS, WeightGradient, answered
from crucible.schedule.convolution.warpgroup.weight_choice import best_weight_walks, weight_division
from crucible.schedule.convolution.warpgroup.weight_walks import WeightWalks
from crucible.schedule.convolution.weight_division import Division, best_divisions, divide

WeightWay: TypeAlias = Division | WeightWalks


def chosen_for_weight(question: WeightGradient, gpu: Gpu) -> WeightWay | None:
    """The division that was measured as fastest, or else that of least estimated time; None where there is none."""
    measured: WeightWay | None = answered(gpu, question)
    if measured is not None:
        return measured
    warps = divide(question.of, UNITS[question.source.dtype], gpu, question.spreads)
    found = [each for each in (warps, _walks(question, gpu)) if each is not None]
    return min(found, key=lambda each: each.total_clocks, default=None)


def weight_clocks(question: WeightGradient, way: WeightWay) -> float:
    """The estimate of a division, of all multiprocessors together. Warps' are chosen as if each product were one."""
    if isinstance(way, Division):
        return way.total_clocks_with(products=EXACT.get(question.math, 1))
    return way.total_clocks


def ways_for_weight(question: WeightGradient, gpu: Gpu, count: int) -> list[WeightWay]:
    """The one that is taken unmeasured, then so many of least estimated time by warps and by warpgroups."""
    first = chosen_for_weight(question, gpu)
    found: list[WeightWay] = [first] if first else []
    found += best_divisions(question.of, UNITS[question.source.dtype], count, gpu, question.spreads)
    if _walks(question, gpu):
        found += best_weight_walks(question.of, ITEM_BYTES[question.source.dtype], count, gpu, question.spreads[0])
    return found


def _walks(question: WeightGradient, gpu: Gpu) -> WeightWalks | None:
    """For warpgroups; None where they do not serve it."""
    spread, other = question.spreads
    if question.exact or other or question.fronts != NO_FRONTS:
        return None
    return weight_division(question.of, question.source, question.grad, gpu, spread)
