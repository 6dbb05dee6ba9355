"""What a step keeps for its gradients, and those of a program as a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from crucible.algebra.adjoint import adjoint, saving
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution
from crucible.algebra.expression import Expr, substitute
from crucible.algebra.pool import Pool
from crucible.algebra.program import Operand, Program, Result, contiguous, trimmed
from crucible.algebra.tidy import without_idle_maxima
from crucible.graph import TensorType
from crucible.kinds.convolution.backward import kept
from crucible.kinds.pooling.backward import useful
from crucible.kinds.pooling.forward import saved as keepable
from crucible.plan.layouts import packed, relaid, without_gaps
from crucible.plan.steps import Fused


def with_backward(step: Fused, types: Mapping[str, TensorType]) -> Fused:
    """The step with what the gradients of its `wanted` operands need of it; `types` are those of tensors in memory."""
    compute, wanted, upstream = step.compute, step.wanted, f"grad_{step.result}"
    if isinstance(compute, Convolution):
        has_to = kept(compute, wanted, upstream) if compute.pool else ()  # what else it may keep: `keeping`
        return replace(step, saved={r.name: flat(compute, r) for r in has_to})
    if isinstance(compute, ReducingConvolution):
        compute, notes = compute.differentiable(wanted)
        further = {r.name: flat(compute.program, r) for r in compute.program.results[1:]}
        return replace(step, compute=compute, saved={**step.saved, **further}, notes=(*step.notes, *notes))
    if isinstance(compute, Pool):
        wanting = useful(compute, wanted, upstream)
        further = {r.name: flat(compute, r) for r in keepable(compute) if r.name in wanting}
        return replace(step, saved={**step.saved, **further})
    assert isinstance(compute, Program)
    asked = {*(step.joined or step.results), *step.updates}
    compute, notes = without_idle_maxima(replace(compute, results=tuple(r for r in compute.results if r.name in asked)))
    compute, backward = _adjoint(compute, wanted, [*(step.joined or step.results)])
    backward = _added_up(_without_gaps(step, backward, types), step.again)
    backward = _reading(backward, [result for result in compute.results if result.name in step.further])
    saved = {r.name: flat(compute, r) for r in compute.results if r.name not in asked}
    backward = replace(backward, name=f"{step.name}_backward")
    step = replace(step, compute=compute, saved=saved, backward=backward, notes=(*step.notes, *notes))
    return _made_once(step, backward, types)


def _without_gaps(step: Fused, backward: Program, types: Mapping[str, TensorType]) -> Program:
    """The gradient of a part of a tensor is a tensor of its own, or a part of one."""
    gaps = {name: types[held] for name, held in step.operands.items() if packed(types[held]) != types[held]}

    def laid(result: Result) -> tuple[int, ...]:
        operand = result.name.removeprefix("grad_")
        if operand not in gaps:
            return result.strides
        if operand in step.parts:
            return relaid(result.strides, gaps[operand], packed(gaps[operand]))
        return without_gaps(backward.shape[: len(result.strides)], result.strides)  # of rows it has none for columns

    return replace(backward, results=tuple(replace(each, strides=laid(each)) for each in backward.results))


def _added_up(backward: Program, again: Mapping[str, str]) -> Program:
    """With the gradients by all of a result's names in the place of the one by its first."""
    known = {each.name: each for each in backward.operands}
    further = {f"grad_{name}": known.get(f"grad_{held}") for name, held in again.items()}
    operands = {name: replace(of, name=name) for name, of in further.items() if of is not None}
    total: dict[Expr, Expr] = {}
    for name, of in further.items():
        if of is not None:
            total[of.leaf] = total.get(of.leaf, of.leaf) + operands[name].leaf
    return substituted(replace(backward, operands=(*backward.operands, *operands.values())), total)


def _reading(backward: Program, written: Sequence[Result]) -> Program:
    """With what is in memory read there, instead of computed again."""
    held = {each.expr: Operand(each.name, each.dtype, each.strides) for each in written}
    leaves = {expr: operand.leaf for expr, operand in held.items()}
    return trimmed(substituted(replace(backward, operands=(*backward.operands, *held.values())), leaves))


def substituted(program: Program, replaced: Mapping[Expr, Expr]) -> Program:
    """With some of the values that it reads replaced."""
    return replace(
        program,
        reductions=tuple(replace(each, expr=substitute(each.expr, replaced)) for each in program.reductions),
        results=tuple(replace(each, expr=substitute(each.expr, replaced)) for each in program.results),
    )


def _made_once(step: Fused, backward: Program, types: Mapping[str, TensorType]) -> Fused:
    """Without gradients that are another's, element by element: both terms of a sum have that of the sum."""
    found: list[tuple[Result | Operand, Expr, TensorType]] = []
    upstream = step.upstream | {f"grad_{name}": step.parts[name].of(step.type) for name in step.joined}
    found += [(each, each.leaf, upstream[each.name]) for each in backward.operands if each.name in upstream]
    passed: dict[str, str] = {}
    for result in backward.results:
        operand = result.name.removeprefix("grad_")
        if operand in step.parts:
            continue
        type_ = packed(types[step.operands[operand]])
        same = (each for each, expr, of in found if expr == result.expr and each.dtype == result.dtype
                and _is_same(each, of, result, type_))  # fmt: skip
        other = None if result.sums else next(same, None)
        if other is not None:
            passed[operand] = other.name
        else:
            found.append((result, result.expr, type_))
    kept = tuple(result for result in backward.results if result.name.removeprefix("grad_") not in passed)
    return replace(step, backward=trimmed(replace(backward, results=kept)), passed=passed)


def _is_same(one: Result | Operand, of: TensorType, other: Result, type_: TensorType) -> bool:
    """Whether elements of two tensors, over one space, are the same ones in the same places; one of them may be a part
    of a tensor."""
    if packed(of) == of:
        return one.strides == other.strides and _lie_alike(type_, of)
    return type_.shape == of.shape and one.strides == relaid(other.strides, type_, of)


def _lie_alike(one: TensorType, other: TensorType) -> bool:
    """Whether one is the other, seen in another shape at most."""
    dense = all(each.strides == contiguous(each.shape) for each in (one, other))
    return one == other or (dense and one.dtype == other.dtype)


def _adjoint(program: Program, wanted: Sequence[str], results: Sequence[str]) -> tuple[Program, Program]:
    """The program with the reductions as further results that its gradients read, a number a row against another
    pass; and the gradients."""
    reductions = [reduction.name for reduction in program.reductions]
    backward = adjoint(program, wanted, {result: f"grad_{result}" for result in results}, saved=reductions)
    read = {operand.name for operand in backward.operands}
    return saving(program, [name for name in reductions if f"saved_{name}" in read]), backward


def flat(compute: Program | Pool | Convolution, result: Result) -> TensorType:
    """What is kept for backward lies in memory without gaps."""
    if isinstance(compute, Convolution):
        shape = compute.made_shape
    else:
        shape = compute.row_shape if isinstance(compute, Program) else compute.output_shape
    return TensorType((math.prod(shape),), (1,), result.dtype)
