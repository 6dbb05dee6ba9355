"""Forward of a convolution that writes its product for backward, beside the result or in front of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from crucible.algebra.convolution.fused import LEAF, Convolution
from crucible.algebra.crossings import Crossings
from crucible.algebra.expression import substitute, tensor
from crucible.algebra.moments import Moments
from crucible.algebra.program import Operand, Program, Result
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.kinds.convolution.crossings import across, crossing_pays, lower_crossing
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.convolution.moments import lower_measuring, measured, measuring, near
from crucible.print.written import Lowered
from crucible.schedule import cost, pays
from crucible.schedule.convolution.choice import chosen, least_clocks
from crucible.schedule.convolution.warpgroup.streams import Streams
from crucible.schedule.machine import machine_of


def lower_keeping(
    conv: Convolution, kept: Sequence[Result], gpu: Gpu, *, alone: bool, aside: Moments | Crossings | None = None
) -> tuple[Lowered | Program, ...]:
    """The kernels that write the result and what is kept of the product: one for both, or one for the product `alone`,
    which a program reads; perhaps with moments or crossings of the result."""
    if isinstance(aside, Crossings):
        return _crossing(conv, kept, gpu, aside, alone=alone)
    moments = aside
    apart = _alone(conv, kept) if alone else None
    if apart is None:
        both = _together(conv, kept)
        return lower_measuring(both, moments, gpu) if moments else (lower_convolution(both, gpu=gpu),)
    chain = _chain(conv, kept[0])
    if moments is None:
        return lower_convolution(apart, gpu=gpu), chain
    named = replace(conv, name=apart.name)  # forward without gradients has a kernel of the other name
    return near(named, moments), lower_convolution(apart, gpu=gpu), measured(chain, moments)


def _crossing(
    conv: Convolution, kept: Sequence[Result], gpu: Gpu, crossings: Crossings, *, alone: bool
) -> tuple[Lowered | Program, ...]:
    """With crossings: of the convolution where that takes less than a program that reads the result for them."""
    both = _together(conv, kept)
    if not alone and crossing_pays(both, crossings, gpu):
        return lower_crossing(both, crossings, gpu)
    return *lower_keeping(conv, kept, gpu, alone=alone), across(conv, crossings)


def is_faster_alone(conv: Convolution, kept: Sequence[Result], gpu: Gpu, moments: Moments | None = None) -> bool:
    """Whether the product alone and a program are estimated to take less, which then takes the moments too: streams
    that write two tensors have smaller boxes, and take no moments. Tiles by warps write both as fast (100 of level 2:
    5.16 ms, for 4.50 with the result alone)."""
    together, alone = _together(conv, kept), _alone(conv, kept)
    if alone is None or not isinstance(chosen(together, gpu), Streams):
        return False
    if moments:
        together = measuring(together, moments)
    apart, at_once = _alone_clocks(conv, alone, gpu), least_clocks(together, gpu)
    return apart is not None and at_once is not None and pays.product_alone_pays(machine_of(gpu), apart, at_once)


def keeping_clocks(conv: Convolution, kept: Sequence[Result], gpu: Gpu) -> float | None:
    """The estimate for them, of all multiprocessors; None where there is no division."""
    alone = _alone(conv, kept)
    if alone is not None and is_faster_alone(conv, kept, gpu):
        return _alone_clocks(conv, alone, gpu)
    return least_clocks(_together(conv, kept), gpu)


def _together(conv: Convolution, kept: Sequence[Result]) -> Convolution:
    return replace(conv, name=f"{conv.name}_keeping", results=(*conv.results, *kept))


def _alone(conv: Convolution, kept: Sequence[Result]) -> Convolution | None:
    """The convolution that writes the product alone; None where that is not what is kept, or is the result."""
    is_chained = any(each.expr is not LEAF for each in conv.results)
    if conv.pool or conv.reductions or len(kept) != 1 or not is_chained:
        return None
    return replace(conv, name=f"{conv.name}_keeping", operands=(), results=(kept[0],))


def _chain(conv: Convolution, kept: Result) -> Program:
    """The chain, over a product in memory."""
    product = tensor(kept.name)
    results = tuple(replace(each, expr=substitute(each.expr, {LEAF: product})) for each in conv.results)
    operands = (Operand(kept.name, "float32", kept.strides), *conv.operands)
    return Program(f"{conv.name}_of_product", conv.made_shape, len(conv.made_shape), operands, (), results)


def _alone_clocks(conv: Convolution, alone: Convolution, gpu: Gpu) -> float | None:
    """With the program behind it."""
    clocks, elements = least_clocks(alone, gpu), math.prod(conv.made_shape)
    if clocks is None:
        return None
    moved = [each.dtype for each in conv.loaded] + [each.dtype for each in conv.results]
    bytes_ = ITEM_BYTES["float32"] + sum(ITEM_BYTES[dtype] for dtype in moved)
    return clocks + cost.program(machine_of(gpu), elements * bytes_, elements * conv.chain_slots)
