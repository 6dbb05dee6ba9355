"""Steps as kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crucible.graph import TensorType
from crucible.plan.steps import Fused
from crucible.write.families import lower
from crucible.write.kernel import Lowered
from crucible.write.pool_backward import pool_backward
from crucible.write.pool_forward import pool_forward
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
    return (pool_forward(step.compute),)


def lowered_backward(step: Fused) -> Backward:
    """Raises ValueError for a step that takes no gradient."""
    if isinstance(step.compute, Program):
        assert step.backward is not None
        programs = stages(step.backward)
    else:
        programs = stages(pool_backward(step.compute))
    made = {result.name: (program, result) for program in programs for result in program.results}
    partials = {name: _flat(*each) for name, each in made.items() if name.startswith("partial_")}
    gradients = tuple(name for name in step.wanted if f"grad_{name}" in made)
    return Backward(tuple(lower(program) for program in programs), gradients, partials)


def _flat(program: Program, result: Result) -> TensorType:
    sizes = program.shape[: len(result.strides)]
    elements = 1 + sum((size - 1) * stride for size, stride in zip(sizes, result.strides, strict=True))
    return TensorType((elements,), (1,), result.dtype)
