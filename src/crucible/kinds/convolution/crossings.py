"""A convolution that also reduces its result over channels (`algebra/crossings.py`), for the program that reads it."""

from __future__ import annotations

import math
from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.crossings import Crossings
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.kinds.convolution.lower import lower_convolution
from crucible.print.written import Lowered
from crucible.schedule import cost
from crucible.schedule.convolution.choice import chosen, least_clocks
from crucible.schedule.machine import machine_of


def crossable(conv: Convolution) -> bool:
    """Whether its result is one that may be reduced over channels as it is written: float32, since of a half type it
    is rounded behind the registers that would be reduced."""
    beside = conv.pool or conv.reductions or conv.crossings or conv.front is not None
    if beside or len(conv.results) != 1:
        return False
    (result,) = conv.results
    return result.dtype == "float32" and not result.sums and result.strides == contiguous(conv.made_shape)


def crossing_pays(conv: Convolution, crossings: Crossings, gpu: Gpu, *, readers: int = 1, writes: bool = True) -> bool:
    """Whether what that takes more, which may be less without the result, is less than to read it so often."""
    alone, crossing = least_clocks(conv, gpu), least_clocks(_crossing(conv, crossings, writes=writes), gpu)
    if alone is None or crossing is None:
        return False
    return crossing - alone < cost.byte_traffic(machine_of(gpu), readers * written_bytes(conv))


def written_bytes(conv: Convolution) -> int:
    """Of its result."""
    return math.prod(conv.made_shape) * ITEM_BYTES[conv.results[0].dtype]


def lower_crossing(
    conv: Convolution, crossings: Crossings, gpu: Gpu, *, writes: bool = True
) -> tuple[Lowered | Program, ...]:
    """The kernels that write the results and their crossings: these of a block's channels first, where it has not all.
    Or crossings alone."""
    found = _crossing(conv, crossings, writes=writes)
    tiling = chosen(found, gpu)
    assert tiling is not None  # or nobody would ask for it
    made = lower_convolution(found, tiling, gpu)
    if tiling.channel_tiles == 1:
        return (made,)
    return made, *(_together(conv, each, tiling.channel_tiles) for each in crossings.reductions)


def across(conv: Convolution, crossings: Crossings) -> Program:
    """The program that finds them in the result."""
    batch, channels, *space = conv.made_shape
    of, strides = conv.results[0], contiguous((batch, *space))
    operand = Operand(of.name, of.dtype, (of.strides[0], *of.strides[2:], of.strides[1]))
    reductions = tuple(replace(each, name=f"{each.name}_is") for each in crossings.of(operand.leaf))
    made = zip(crossings.names, reductions, strict=True)
    results = tuple(Result(name, "float32", strides, each.leaf) for name, each in made)
    shape = (batch, *space, channels)
    return Program(f"{conv.name}_across", shape, len(shape) - 1, (operand,), reductions, results)


def _crossing(conv: Convolution, crossings: Crossings, *, writes: bool) -> Convolution:
    found = crossings.of(conv.results[0].expr)
    return replace(conv, results=conv.results if writes else (), crossings=found)


def _together(conv: Convolution, crossing: Reduction, parts: int) -> Program:
    """Of the channels that blocks have, of all."""
    batch, _, *space = conv.made_shape
    positions = batch * math.prod(space)
    part = Operand(f"{crossing.name}_parts", "float32", (1, positions))
    whole = Reduction(f"{crossing.name}_is", crossing.kind, part.leaf)
    result = Result(crossing.name, "float32", (1,), whole.leaf)
    return Program(f"{conv.name}_{crossing.name}", (positions, parts), 1, (part,), (whole,), (result,))
