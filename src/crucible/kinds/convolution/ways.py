"""The few divisions of least estimated time that a convolution's kernels may take, and its kernels by each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from crucible.errors import MisuseError
from crucible.gpus import Gpu
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.convolution.weights import lower_weight
from crucible.print.written import Lowered
from crucible.schedule.convolution import choice
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.pairs import maximum_of
from crucible.schedule.convolution.questions import Multiplying, Question, Way, WeightGradient, renamed
from crucible.schedule.convolution.tile_choice import best, tile
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.divisions import best_for_warpgroups
from crucible.schedule.convolution.warpgroup.phases import phase_division
from crucible.schedule.convolution.weights import ways_for_weight

RESULT = "weight_gradient"
"""The tensor that a weight's gradient is written to by itself."""
_NOT_TOLD = {
    "of",
    "made_from",
    "chain",
    "sms",
    "machine",
    "tensors",
    "loads",
    "chain_slots",
    "crossings",
    "spread",
    "pool",
    "exact",
    "lower_held",
}
"""Of a division: what follows from the question, and from the rest of it."""


def ways(question: Question, gpu: Gpu, count: int) -> list[Way]:
    """Those that lowering may choose among: first the one that it takes unmeasured, then up to `count` of least
    estimated time of each kind (warps, warpgroups), none twice. All of them can be lowered. `gpu` is a plain one."""
    found = ways_for_weight(question, gpu, count) if isinstance(question, WeightGradient) else _of(question, gpu, count)
    different = list({described(way): way for way in found}.values())
    return [different[0], *(way for way in different[1:] if _fits(question, way, gpu))] if different else []


def lowered(question: Question, way: Way, gpu: Gpu, name: str) -> Lowered:
    """The kernels, called `name` and what begins so; a weight's gradient goes to a tensor `RESULT`."""
    asked = renamed(question, name)
    if isinstance(asked, WeightGradient):
        return lower_weight(asked, way, RESULT, gpu)
    return lower_convolution(asked.conv, way, gpu)


def described(way: Way) -> str:
    """A division in words; no two ways of a question have the same."""
    told = [f"{each.name} {getattr(way, each.name)}" for each in fields(way) if each.name not in _NOT_TOLD]
    return f"{type(way).__name__}: {', '.join(told)}{', taps folded' * bool(way.of.folds)}"


def clocks(question: Question, way: Way) -> float:
    """The estimate for it, of all multiprocessors together."""
    return choice.clocks(question, way) if isinstance(question, Multiplying) else float(way.total_clocks)


def _fits(question: Question, way: Way, gpu: Gpu) -> bool:
    """Whether there are kernels: sums of many channels may not fit beside a tile that does."""
    try:
        lowered(question, way, gpu, "tried")
    except MisuseError:
        return False
    return True


def _of(question: Multiplying, gpu: Gpu, count: int) -> list[Way]:
    conv, unit = question.conv, UNITS[question.conv.source.dtype]
    pool, spread = conv.pool.sizes if conv.pool else (), conv.spread.sizes if conv.spread else ()
    found: list[Way] = best(conv.correlation, unit, count, gpu, pool, spread, tensors=question.tensors)
    if conv.reductions or question.alike:
        return _of_pass(question, found, gpu, count)
    first = choice.chosen(conv, gpu)
    found = [] if conv.crossings else found
    found = sorted([*found, *best_for_warpgroups(conv, count, gpu)], key=lambda way: clocks(question, way))
    return [*([first] if first else []), *found]


def _of_pass(question: Multiplying, warps: Sequence[Tiling], gpu: Gpu, count: int) -> list[Way]:
    """Of a program over the product, as `reducing` divides it. Products have the same bits in all ways of warps but
    where taps are folded: then one serves all. A sum that is relative to its item's maximum needs both in registers."""
    conv, unit = question.conv, UNITS[question.conv.source.dtype]
    usual, first = tile(conv.correlation, unit, gpu), tile(conv.correlation, unit, gpu, tensors=question.tensors)
    if usual is None or first is None:
        return []
    first = usual if usual.of.folds or first.of.folds else first
    if question.alike:
        paired = any(maximum_of(each, conv.reductions) for each in conv.reductions)
        rest = [way for way in warps if not (paired and not way.reduces_in_registers(len(conv.reductions)))]
        return [first] if first.of.folds else [first, *(way for way in rest if not way.of.folds)]
    found = sorted([*warps, *best_for_warpgroups(conv, count, gpu)], key=lambda way: clocks(question, way))
    phased = phase_division(conv, gpu)
    faster = phased is not None and phased.total_clocks < first.total_clocks_with(question.tensors)
    return [phased if faster else first, *found]
