"""What a step keeps for its gradients, and those of a program as a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from crucible.graph import TensorType
from crucible.kinds.convolution.backward import kept
from crucible.kinds.pooling.backward import useful
from crucible.kinds.pooling.forward import saved as keepable
from crucible.plan.steps import Fused
from crucible.write.adjoint import adjoint, saving
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.reducing import ReducingConvolution
from crucible.write.pool import Pool
from crucible.write.program import Program, Result
from crucible.write.tidy import without_idle_maxima


def with_backward(step: Fused) -> Fused:
    """The step with what the gradients of its `wanted` operands need of it."""
    compute, wanted, upstream = step.compute, step.wanted, f"grad_{step.result}"
    if isinstance(compute, Convolution):
        return replace(step, saved={r.name: flat(compute, r) for r in kept(compute, wanted, upstream)})
    if isinstance(compute, ReducingConvolution):
        compute, notes = compute.differentiable(wanted)
        further = {r.name: flat(compute.program, r) for r in compute.program.results[1:]}
        return replace(step, compute=compute, saved={**step.saved, **further}, notes=(*step.notes, *notes))
    if isinstance(compute, Pool):
        wanting = useful(compute, wanted, upstream)
        further = {r.name: flat(compute, r) for r in keepable(compute) if r.name in wanting}
        return replace(step, saved={**step.saved, **further})
    assert isinstance(compute, Program)
    compute, notes = without_idle_maxima(compute)
    compute, backward = _adjoint(compute, wanted)
    saved = {r.name: flat(compute, r) for r in compute.results[1:] if r.name not in step.updates}
    backward = replace(backward, name=f"{step.name}_backward")
    return replace(step, compute=compute, saved=saved, backward=backward, notes=(*step.notes, *notes))


def _adjoint(program: Program, wanted: Sequence[str]) -> tuple[Program, Program]:
    """The program with the reductions as further results that its gradients read, a number a row against another
    pass; and the gradients."""
    reductions = [reduction.name for reduction in program.reductions]
    result = program.results[0].name
    backward = adjoint(program, wanted, {result: f"grad_{result}"}, saved=reductions)
    read = {operand.name for operand in backward.operands}
    return saving(program, [name for name in reductions if f"saved_{name}" in read]), backward


def flat(compute: Program | Pool | Convolution, result: Result) -> TensorType:
    """What is kept for backward lies in memory without gaps."""
    if isinstance(compute, Convolution):
        shape = compute.made_shape
    else:
        shape = compute.row_shape if isinstance(compute, Program) else compute.output_shape
    return TensorType((math.prod(shape),), (1,), result.dtype)
