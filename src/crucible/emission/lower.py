"""Steps as kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crucible.graph import TensorType
from crucible.plan.steps import Fused
from crucible.write.families.lower import lower
from crucible.write.kernel import Lowered
from crucible.write.pool import Pool
from crucible.write.pooling.backward import lower_pool_backward
from crucible.write.pooling.forward import lower_pool
from crucible.write.program import Program, Result
from crucible.write.stages import stages


@dataclass(frozen=True)
class Backward:
    """The kernels for the gradients of a step."""

    lowered: tuple[Lowered, ...]
    gradients: tuple[str, ...]
    """The operands whose gradients they write, as `grad_<operand>`."""
    partials: Mapping[str, TensorType]
    """Tensors that one stage writes for a later one."""


def lowered_forward(step: Fused) -> tuple[Lowered, ...]:
    if isinstance(step.compute, Program):
        return (lower(step.compute),)
    return (lower_pool(step.compute, save=tuple(step.saved)),)


def lowered_backward(step: Fused) -> Backward:
    """The kernels of a step that takes a gradient."""
    if step.backward is None:
        assert isinstance(step.compute, Pool)
        return _of_pool(step, step.compute)
    programs = stages(step.backward)
    made = {result.name: (program, result) for program in programs for result in program.results}
    partials = {name: _flat(*each) for name, each in made.items() if name.startswith("partial_")}
    gradients = tuple(name for name in step.wanted if f"grad_{name}" in made)
    return Backward(tuple(lower(program) for program in programs), gradients, partials)


def _of_pool(step: Fused, pool: Pool) -> Backward:
    found = lower_pool_backward(pool, step.wanted, f"grad_{step.result}", tuple(step.saved))
    lowered = tuple(lower(each) if isinstance(each, Program) else each for each in found.steps)
    partials = {buffer.name: TensorType((buffer.elements,), (1,), buffer.dtype) for buffer in found.buffers}
    return Backward(lowered, tuple(name for name in step.wanted if f"grad_{name}" in found.results), partials)


def _flat(program: Program, result: Result) -> TensorType:
    sizes = program.shape[: len(result.strides)]
    elements = 1 + sum((size - 1) * stride for size, stride in zip(sizes, result.strides, strict=True))
    return TensorType((elements,), (1,), result.dtype)
