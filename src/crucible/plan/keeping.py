"""Which convolutions write their product for backward, against computing it again there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.program import Program, Result
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.kinds.convolution.backward import kept, product_again
from crucible.kinds.convolution.keeping import is_faster_alone, keeping_clocks
from crucible.plan.backward import flat
from crucible.plan.steps import Fused, Step
from crucible.schedule import cost, pays
from crucible.schedule.convolution.choice import least_clocks
from crucible.schedule.machine import machine_of


def with_products_kept(steps: Sequence[Step], gpu: Gpu) -> tuple[Step, ...]:
    """The steps, of which convolutions whose gradients read the product keep it where an estimate says that it takes
    less: to write it, and a program that reads it, as memory moves, against the convolution once more. A call without
    gradients writes none. Floats alone: of half types float32 would be kept, which is twice what they move."""
    return tuple(_kept(each, gpu) if isinstance(each, Fused) else each for each in steps)


def _kept(step: Fused, gpu: Gpu) -> Fused:
    conv = step.compute
    if not isinstance(conv, Convolution) or conv.pool or not step.wanted or conv.source.dtype != "float32":
        return step
    results = kept(conv, step.wanted, f"grad_{step.result}")
    if not results or not _pays(conv, step, results, gpu):
        return step
    alone = is_faster_alone(conv, results, gpu)
    return replace(step, saved={each.name: flat(conv, each) for each in results}, product_alone=alone)


def _pays(conv: Convolution, step: Fused, results: tuple[Result, ...], gpu: Gpu) -> bool:
    again, program = product_again(conv, step.wanted, f"grad_{step.result}")
    repeated = least_clocks(again, gpu)
    if keeping_clocks(conv, results, gpu) is None:
        return False
    machine = machine_of(gpu)
    # estimates of kernels that write two tensors are 0.9 to 1.4 times what one takes: what moves is surer
    written = sum(math.prod(conv.made_shape) * ITEM_BYTES[each.dtype] for each in results)
    moved = cost.byte_traffic(machine, written + _moved(program))
    return repeated is None or pays.keeping_pays(machine, moved, repeated)


def _moved(program: Program) -> int:
    """Bytes that it reads and writes."""
    shape = program.shape
    read = ((each.strides, each.dtype) for each in program.operands)
    made = ((each.strides, each.dtype) for each in program.results if not each.sums)
    return sum(
        math.prod(n for n, stride in zip(shape, strides, strict=True) if stride) * ITEM_BYTES[dtype]
        for strides, dtype in (*read, *made)
    )
