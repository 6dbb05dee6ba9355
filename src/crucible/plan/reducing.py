"""Lazy values that reduce a convolution's output over space, as passes over its product or as programs over a tensor.

A pass that computes the product again reads the input and the weight; one over memory reads the output's tensor, which
has to be written first. Where what is multiplied is little the first is cheaper, by an estimate of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from crucible.algebra.convolution.fused import PRODUCT
from crucible.algebra.convolution.reducing import ROWS, ReducingConvolution, product
from crucible.algebra.expression import substitute
from crucible.algebra.program import Program, Result, reads, trimmed
from crucible.algebra.tidy import without_idle_maxima
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.plan.convolutions import bare
from crucible.plan.join import with_own_names
from crucible.plan.lazy import Convolving, Lazy, is_over_space, output_dims
from crucible.plan.settle import Settled, is_shared, laid, layout_like
from crucible.schedule import cost
from crucible.schedule.convolution.choice import least_clocks
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.pairs import schedule, tensors
from crucible.schedule.convolution.tile_choice import tile
from crucible.schedule.machine import machine_of
from crucible.schedule.passes import passes


def fits(value: Lazy) -> bool:
    """Whether the value, which has reductions, goes over its convolution's output as it is. Elements within a tensor
    are read by programs alone."""
    return is_over_space(value, value.columns) and not any(operand.start for operand in value.operands)


def settled(value: Lazy, name: str, strides: Sequence[int]) -> Settled:
    """The convolution with the program over its output that writes the value to a tensor `name` laid as `strides`
    say."""
    convolving = value.base
    assert isinstance(convolving, Convolving)
    (value,) = with_own_names((value,), convolving.tensors)  # gradients are of the convolution and of the chain
    program = programmed(value, name, strides)
    made = ReducingConvolution(name, bare(convolving, name), program)
    tensors = {**convolving.tensors, **{operand.name: value.tensors[operand.name] for operand in made.operands}}
    return Settled(made, tensors, value.shape, tuple(strides))


def programmed(value: Lazy, name: str, strides: Sequence[int]) -> Program:
    """The program over the convolution's output, batch and channels being rows."""
    convolving, at, seen = value.base, output_dims(value), laid(value, strides)
    assert isinstance(convolving, Convolving) and at is not None
    shape = convolving.correlation.out_shape
    moved = [replace(o, strides=tuple(0 if d is None else o.strides[d] for d in at)) for o in value.operands]
    found = [replace(o, shared=is_shared(o, shape)) for o in moved if o.name != convolving.name]
    whole = product(bare(convolving, name))
    leaves = {o.leaf: whole.leaf for o in value.operands if o.name == convolving.name}
    leaves |= {o.leaf: replace(o, shared=is_shared(o, shape)).leaf for o in moved if o.name != convolving.name}
    reductions = tuple(replace(r, expr=substitute(r.expr, leaves)) for r in value.reductions)
    made = tuple(0 if d is None else seen[d] for d in (at[:ROWS] if value.per_row else at))
    result = Result(name, value.dtype, made, substitute(value.expr, leaves))
    return trimmed(Program(name, shape, ROWS, (whole, *found), reductions, (result,)))


def time_of_passes(value: Lazy, gpu: Gpu) -> float:
    """How long it takes to compute the product in each pass, by an estimate, against writing it once and reading it in
    each. What else is read is the same, and the gradients are in favour of the former: they need it in two passes more
    as a rule, besides another tensor of that size."""
    assert isinstance(value.base, Convolving)
    of, dtype = value.base.correlation, value.base.source.dtype
    gpu = replace(gpu, sms=1)  # which is never idle: of memory, too, it is counted what all of them do together
    program, _ = without_idle_maxima(programmed(value, "value", layout_like(value)))

    def clocks(tensors: int) -> float:
        tiling = tile(of, UNITS[dtype], gpu, tensors=tensors)
        assert tiling is not None  # or the convolution would be PyTorch's
        return tiling.total_clocks_with(tensors)

    summing = tile(of, UNITS[dtype], gpu, tensors=0)
    assert summing is not None
    multiplying = [s for s in schedule(program, summing) if any(PRODUCT in reads(root) for root in s.roots)]
    again, once = sum(clocks(tensors(step, program)) for step in multiplying), clocks(1)
    if (conv := bare(value.base, "value")).keeps_float32:  # of which warpgroups multiply, where passes are by warps
        again *= cost.tiles_times(machine_of(gpu), is_exact=True, phased=math.prod(of.phases) > 1)
        once = least_clocks(conv, gpu) or once
    moved = (len(passes(program)) + (not value.per_row)) * math.prod(of.out_shape) * ITEM_BYTES[dtype]
    return again / (once + cost.byte_traffic(machine_of(gpu), moved))
