"""A convolution that also writes the moments of its result (`algebra/moments.py`), for the norm that reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from crucible.algebra.convolution.fused import LEAF, Convolution
from crucible.algebra.expression import Expr, substitute, where
from crucible.algebra.moments import ROWS, Moments
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous, trimmed
from crucible.gpus import Gpu
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.convolution.reducing import added_up
from crucible.print.written import Lowered
from crucible.schedule.convolution.choice import chosen, least_clocks

FARTHEST = 1e30
"""What is as far off 0 is no number to be near to, and what is not finite is none: an image's values are not another's
to spoil."""


def measurable(conv: Convolution) -> bool:
    """Whether moments of its result are written: of chains over numbers of channels alone, which are known before the
    products are."""
    beside = conv.pool or conv.spread or conv.reductions or conv.front is not None
    of_channel = all(not any(each.strides[:1] + each.strides[2:]) for each in conv.operands)
    is_plain = len(conv.results) == 1 and conv.results[0].strides == contiguous(conv.made_shape)
    return not beside and of_channel and is_plain


def measuring_clocks(conv: Convolution, moments: Moments, gpu: Gpu) -> float | None:
    """The estimate for it with moments, of all multiprocessors; None where there is no division."""
    return least_clocks(measuring(conv, moments), gpu)


def lower_measuring(
    conv: Convolution, moments: Moments, gpu: Gpu, *, writes: bool = True
) -> tuple[Lowered | Program, ...]:
    """The kernels that write the result, whatever is written beside it, and its moments: numbers near the values come
    first, then the convolution, whose items leave their parts of sums, and last these put together. Or its moments
    alone."""
    found = measuring(conv, moments)
    found = found if writes else replace(found, results=())
    tiling = chosen(found, gpu)
    assert tiling is not None  # or the plan would not ask for it
    sums = added_up(
        f"{conv.name}_moments",
        found,
        tiling,
        found.reductions,
        _totals(found.reductions, found.made_shape, moments),
        (),
    )
    return near(conv, moments), lower_convolution(found, tiling, gpu), sums


def measured(program: Program, moments: Moments) -> Program:
    """A chain over [N, C, *space] that takes the moments of its first result as it writes that."""
    of, columns = program.results[0], (0,) * (len(program.shape) - ROWS)
    near_ = Operand(moments.names[0], "float32", (0, 1, *columns), shared=True)
    sums = _sums(of.expr, near_, moments)
    results = (*program.results, *_totals(sums, program.shape, moments))
    return replace(program, rows=ROWS, operands=(*program.operands, near_), reductions=sums, results=results)


def near(conv: Convolution, moments: Moments) -> Program:
    """The program that finds a number near a channel's values: of one place in the middle of the first image, by the
    weights as they lie. Where a transposed convolution would turn them round, or has a part of them for each of its
    phases, it is a number of that size all the same."""
    of = conv.correlation.apart
    _, channel, *space = conv.source.strides
    group, made, read = of.weight_strides
    kernel = [axis.kernel for axis in of.axes]
    fits = [axis.extent >= axis.kernel for axis in of.axes]
    start = sum((axis.extent - axis.kernel * fit) // 2 * step
                for axis, fit, step in zip(of.axes, fits, space, strict=True))  # fmt: skip
    steps = [step * fit for step, fit in zip(space, fits, strict=True)]
    shape = (of.groups, of.out_channels, of.in_channels, *kernel)
    source = replace(conv.source, strides=(of.in_channels * channel, 0, channel, *steps), shared=False, start=start)
    weight = replace(conv.weight, strides=(group, made, read, *contiguous(kernel)), shared=False)
    total = Reduction("product_near", "sum", source.leaf * weight.leaf)
    value = substitute(conv.results[0].expr, {LEAF: total.leaf * (1 / math.prod(of.phases))})
    off = (0,) * (len(shape) - 2)
    shared = [
        replace(each, strides=(each.strides[1] * of.out_channels, each.strides[1], *off)) for each in conv.operands
    ]
    result = Result(moments.names[0], "float32", (of.out_channels, 1), where(abs(value) < FARTHEST, value, 0.0))
    return trimmed(Program(f"{conv.name}_near", shape, 2, (source, weight, *shared), (total,), (result,)))


def measuring(conv: Convolution, moments: Moments) -> Convolution:
    """With the sums as reductions over the space of an image."""
    strides = (0, 1, *(0 for _ in conv.correlation.axes))
    operand = Operand(moments.names[0], "float32", strides, shared=True)
    sums = _sums(conv.results[0].expr, operand, moments)
    return replace(conv, operands=(*conv.operands, operand), reductions=sums)


def _sums(value: Expr, near: Operand, moments: Moments) -> tuple[Reduction, ...]:
    off = value - near.leaf
    each = zip(moments.names[1:], (off, off.square()), strict=False)
    return tuple(Reduction(f"{name}_sum", "sum", expr) for name, expr in each)


def _totals(sums: Sequence[Reduction], shape: Sequence[int], moments: Moments) -> tuple[Result, ...]:
    strides = contiguous(shape[:2])
    return tuple(
        Result(name, "float32", strides, each.leaf) for name, each in zip(moments.names[1:], sums, strict=True)
    )
