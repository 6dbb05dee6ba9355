"""Steps as kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from crucible.algebra.adjoint import adjoint
from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution
from crucible.algebra.crossings import Crossed, Crossings, of_rows
from crucible.algebra.finer import finer
from crucible.algebra.moments import without_elements
from crucible.algebra.product import Product
from crucible.algebra.program import Operand, Program, Result
from crucible.algebra.stages import partials, stages
from crucible.gpus import Gpu
from crucible.graph import TensorType
from crucible.kinds.convolution.backward import kept, lower_convolution_backward
from crucible.kinds.convolution.crossings import lower_crossing
from crucible.kinds.convolution.keeping import lower_keeping
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.convolution.moments import lower_measuring
from crucible.kinds.convolution.reducing import lower_reducing, lower_reducing_backward
from crucible.kinds.pooling.backward import lower_pool_backward
from crucible.kinds.pooling.forward import lower_pool
from crucible.kinds.product.lower import lower_product, lower_product_backward
from crucible.kinds.program.lower import lower, reads_again
from crucible.kinds.steps import Steps
from crucible.plan.steps import Fused
from crucible.print.written import Lowered


@dataclass(frozen=True)
class Backward:
    """The kernels for the gradients of a step."""

    lowered: tuple[Lowered, ...]
    gradients: tuple[str, ...]
    """The operands whose gradients they write, as `grad_<operand>`."""
    partials: Mapping[str, TensorType]
    """Tensors that one stage writes for a later one."""


def lowered_forward(step: Fused, gpu: Gpu, *, keeping: bool = False) -> tuple[Lowered, ...]:
    """The kernels of a step; where it keeps apart what backward needs, with that only if `keeping`."""
    if isinstance(step.compute, Program):
        if step.given is None:
            return (lower(step.compute, gpu.sms),)
        if isinstance(step.given, Crossed):
            return (lower(of_rows(step.compute, step.given), gpu.sms),)
        programs, between = without_elements(step.compute, step.given)
        return (Lowered((), between), *(lower(each, gpu.sms) for each in programs))
    if isinstance(step.compute, Convolution):
        return tuple(lower(each, gpu.sms) if isinstance(each, Program) else each
                     for each in _convolved(step, step.compute, gpu, keeping=keeping))  # fmt: skip
    if isinstance(step.compute, ReducingConvolution):
        found = lower_reducing(step.compute, gpu)
        return (Lowered((), found.buffers), *_lowered(found, gpu))
    if isinstance(step.compute, Product):
        return (lower_product(step.compute, gpu),)
    before = (lower(step.statistics, gpu.sms),) if step.statistics else ()
    return (*before, lower_pool(step.compute, save=tuple(step.saved)))


def _convolved(step: Fused, conv: Convolution, gpu: Gpu, *, keeping: bool) -> tuple[Lowered | Program, ...]:
    if keeping:
        further = [each for each in kept(conv, step.wanted, f"grad_{step.result}") if each.name in step.saved]
        return lower_keeping(conv, further, gpu, alone=step.product_alone, aside=step.aside)
    if step.aside is None:
        return (lower_convolution(conv, gpu=gpu),)
    if isinstance(step.aside, Crossings):
        return lower_crossing(conv, step.aside, gpu, writes=not step.unwritten)
    return lower_measuring(conv, step.aside, gpu, writes=not step.unwritten)


def lowered_backward(step: Fused, gpu: Gpu) -> Backward:
    """The kernels of a step that takes a gradient."""
    if step.backward is None:
        return _in_steps(step, gpu)
    return _of_program(step.backward, step.wanted, gpu)


def _of_program(backward: Program, wanted: Sequence[str], gpu: Gpu) -> Backward:
    programs = _stages(backward, gpu) if backward.results else ()
    made = {result.name for program in programs for result in program.results}
    gradients = tuple(name for name in wanted if f"grad_{name}" in made)
    return Backward(tuple(lower(program, gpu.sms) for program in programs), gradients, _flat_types(partials(programs)))


def _stages(program: Program, gpu: Gpu) -> tuple[Program, ...]:
    """Where rows do not stay in registers, and other sums go over the same elements, both of smaller parts."""
    usual = stages(program)
    cut = finer(program) if len(usual) > 1 and reads_again(usual[0], gpu.sms) else None
    return cut or usual


def _in_steps(step: Fused, gpu: Gpu) -> Backward:
    """Of pools, convolutions and products."""
    compute, upstream = step.compute, f"grad_{step.result}"
    assert not isinstance(compute, Program)
    if isinstance(compute, Convolution):
        found = lower_convolution_backward(compute, step.wanted, upstream, gpu, step.saved)
    elif isinstance(compute, ReducingConvolution):
        found = lower_reducing_backward(compute, step.wanted, upstream, gpu)
    elif isinstance(compute, Product):
        found = lower_product_backward(compute, step.wanted, upstream, gpu)
    else:
        of_rows = [each.name for each in compute.operands if each.name in step.saved and not each.constant]
        found = lower_pool_backward(compute, (*step.wanted, *of_rows), upstream, tuple(step.saved))
    lowered = _lowered(found, gpu)
    gradients = tuple(name.removeprefix("grad_") for name in found.results)
    direct = Backward(lowered, gradients, _flat_types(found.buffers))
    return _with_statistics(step, step.statistics, direct, gpu) if step.statistics else direct


def _lowered(found: Steps, gpu: Gpu) -> tuple[Lowered, ...]:
    return tuple(lower(each, gpu.sms) if isinstance(each, Program) else each for each in found.steps)


def _with_statistics(step: Fused, rows: Program, direct: Backward, gpu: Gpu) -> Backward:
    """What reaches operands through the statistics before a pool, added to what reaches them directly: that becomes a
    tensor on the way, `direct_grad_<operand>`."""
    ends = {r.name: f"grad_{r.name}" for r in rows.results if r.name in direct.gradients}
    wanted = [operand.name for operand in rows.operands if operand.name in step.wanted]
    backward = adjoint(rows, wanted, ends, saved=[reduction.name for reduction in rows.reductions])
    both = [r.name for r in backward.results if r.name.removeprefix("grad_") in direct.gradients]
    summed = [_with_direct(backward, r) if r.name in both else (r, None) for r in backward.results]
    operands = (*backward.operands, *(operand for _, operand in summed if operand))
    through = _of_program(replace(backward, operands=operands, results=tuple(r for r, _ in summed)), wanted, gpu)
    made = {r.name: r for r in rows.results}
    on_the_way = {ends[name]: _flat(rows, made[name]) for name in ends}
    on_the_way |= {f"direct_{r.name}": _flat(backward, r) for r in backward.results if r.name in both}
    lowered = tuple(_renamed(each, {name: f"direct_{name}" for name in both}) for each in direct.lowered)
    gradients = tuple(name for name in step.wanted if name in direct.gradients + through.gradients)
    between = {**direct.partials, **on_the_way, **through.partials}
    return Backward(lowered + through.lowered, gradients, between)


def _with_direct(program: Program, result: Result) -> tuple[Result, Operand]:
    """A gradient with a further term, laid like it; where it is a sum, each of its elements gets a share of that."""
    strides = result.strides + (0,) * (len(program.shape) - len(result.strides))
    shared = any(size > 1 and not stride for size, stride in zip(program.shape, strides, strict=True))
    operand = Operand(f"direct_{result.name}", result.dtype, strides, shared)
    times = math.prod(n for n, stride in zip(program.shape, result.strides, strict=False) if not stride)
    term = operand.leaf * (1 / times) if result.sums else operand.leaf
    return replace(result, expr=result.expr + term), operand


def _renamed(lowered: Lowered, names: Mapping[str, str]) -> Lowered:
    """Writing to tensors of other names."""
    kernels = [replace(each, writes=tuple(names.get(n, n) for n in each.writes)) for each in lowered.kernels]
    return replace(lowered, kernels=tuple(kernels))


def _flat_types(buffers: Sequence[Buffer]) -> dict[str, TensorType]:
    return {buffer.name: TensorType((buffer.elements,), (1,), buffer.dtype) for buffer in buffers}


def _flat(program: Program, result: Result) -> TensorType:
    sizes = program.shape[: len(result.strides)]
    elements = 1 + sum((size - 1) * stride for size, stride in zip(sizes, result.strides, strict=True))
    return TensorType((elements,), (1,), result.dtype)
