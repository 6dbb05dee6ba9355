"""Tensors that kernels depend on and do not read: what is one number for all finite inputs is a fill, and its gradients
are zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from interpret import check, fused_steps, planned
from torch import nn

from crucible.algebra.program import Program, trimmed
from crucible.plan.steps import Call, Fused, Plan

Forward = Callable[..., Any]


class Module(nn.Module):
    """A function with some layers, parameters and buffers."""

    def __init__(self, function: Forward, **held: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in held.items():
            setattr(self, name, value)

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(self, *given)


def zero(value: torch.Tensor) -> torch.Tensor:
    """0 for all finite inputs."""
    return value.clamp(max=0.0).clamp(min=0.0)


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


def calls(plan: Plan) -> list[str]:
    return [step.operation.kind for step in plan.steps if isinstance(step, Call)]


def read(step: Fused) -> set[str]:
    """The tensors that its kernels read."""
    assert isinstance(step.compute, Program)
    return {step.operands[operand.name] for operand in trimmed(step.compute).operands}


def check_fill(plan: Plan, *leaves: str) -> None:
    """One kernel takes these tensors, in this order, and reads nothing; their gradients take none."""
    (step,) = plan.steps
    assert (
        isinstance(step, Fused) and step.reads == leaves and not read(step) and step.bytes_moved - step.type.bytes < 64
    )
    assert {step.operands[name] for name in step.wanted} == {*leaves}
    assert step.backward is not None and not step.backward.results and not step.saved


LAID: dict[str, Callable[[], torch.Tensor]] = {
    "in rows": lambda: torch.randn(5, 8),
    "in columns": lambda: torch.randn(8, 5).t(),
    "with gaps": lambda: torch.randn(5, 16)[:, ::2],
    "in one dim": lambda: torch.randn(8),
}


@pytest.mark.parametrize("laid", LAID)
def test_one_number_is_a_fill(laid: str) -> None:
    plan = check(Module(lambda m, x: zero(m.fc(x)) + 1.5, fc=nn.Linear(8, 12)), LAID[laid]())
    check_fill(plan, "given_0", "fc_weight", "fc_bias")


def test_of_a_norm_over_channels_that_lie_last_too() -> None:
    module = Module(lambda m, x: zero(m.norm(m.conv(x))), conv=nn.Conv2d(4, 6, 3), norm=nn.GroupNorm(3, 6))
    plan = check(module, torch.randn(2, 4, 7, 6).to(memory_format=torch.channels_last))
    check_fill(plan, "given_0", "conv_weight", "conv_bias", "norm_weight", "norm_bias")


@pytest.mark.parametrize(("given", "made"), [("float16", "float32"), ("float64", "float32"), ("float32", "bfloat16")])
def test_tensors_of_other_types_than_the_number_keep_theirs(given: str, made: str) -> None:
    """They were called with as tensors of the number's."""
    module = Module(lambda m, x: zero(m.fc(x.float()).to(getattr(torch, made))), fc=nn.Linear(8, 12))
    plan = planned(module, torch.randn(5, 8).to(getattr(torch, given)))
    check_fill(plan, "given_0", "fc_weight", "fc_bias")
    (step,) = fused_steps(plan)
    assert [operand.dtype for operand in step.all_operands] == [given, "float32", "float32"]
    assert step.type.dtype == made
    for operation in plan.graph.operations:  # what is called makes what it is said to
        if operation.kind in ("reshape", "slice", "sum"):
            assert plan.graph.values[operation.inputs[0]].tensor.dtype == operation.output.tensor.dtype


def test_a_parameter_that_takes_no_gradient_is_none_of_them() -> None:
    module = Module(lambda m, x: zero(m.fc(x)), fc=nn.Linear(8, 12).requires_grad_(False))
    check_fill(planned(module, torch.randn(5, 8)), "given_0")


def test_beside_others_it_takes_the_place_of_the_sums_alone() -> None:
    module = Module(lambda m, x, y: zero(m.fc(x)) + y.tanh() * m.c, fc=nn.Linear(8, 12), c=weight(12))
    plan = check(module, torch.randn(5, 8), torch.randn(5, 12))
    (step,) = fused_steps(plan)
    assert calls(plan) == [] and read(step) == {"given_1", "c"}
    assert {*step.reads} == {"given_0", "fc_weight", "fc_bias", "given_1", "c"}
    assert step.backward is not None and {each.name for each in step.backward.results} == {"grad_given_1", "grad_c"}


def test_in_reductions_it_is_0_as_well() -> None:
    plan = check(Module(lambda m, x, y: (y + m.c[:0].sum()).softmax(1) * y.sum(1, True), c=weight(12)),
                 torch.randn(5, 8), torch.randn(5, 9), unused=True)  # fmt: skip
    (step,) = fused_steps(plan)
    assert calls(plan) == [] and {*step.reads} == {"given_1", "c"} and read(step) == {"given_1"}


def test_a_tensor_that_is_read_as_well_is_taken_once() -> None:
    plan = check(Module(lambda m, x: zero(m.fc(x)) + x.tanh(), fc=nn.Linear(8, 8)), torch.randn(5, 8))
    (step,) = fused_steps(plan)
    assert calls(plan) == [] and sorted(step.reads) == ["fc_bias", "fc_weight", "given_0"] and read(step) == {"given_0"}


def test_what_others_read_is_still_made() -> None:
    """The caller, or a product of PyTorch's."""
    plan = check(Module(lambda m, x: (x.softmax(1) + (e := m.c.reshape(-1)[:0].sum()), e), c=weight(3, 4)),
                 torch.randn(5, 8))  # fmt: skip
    assert calls(plan) == ["reshape", "slice", "sum"]
    assert [{*step.reads} for step in fused_steps(plan)] == [{"given_0", "c"}]
    plan = check(Module(lambda m, x: (x.tanh() + (e := m.c[:0].sum())) @ e.expand(8, 3), c=weight(4)),
                 torch.randn(5, 8))  # fmt: skip
    assert calls(plan)[:2] == ["slice", "sum"]


def test_a_tensor_is_taken_as_far_back_as_it_is_in_memory_by_then() -> None:
    """`t` itself comes to be behind the kernel that takes the sum."""
    module = Module(lambda m, x: (x.relu() + (t := x.softmax(1) * 2).reshape(-1)[:0].sum(), t + 1, t))
    plan = check(module, torch.randn(5, 8))
    made = {"given_0"}
    for step in plan.steps:
        assert {*step.reads} <= made
        made |= {*step.names}
    assert calls(plan) == []


def test_what_takes_no_gradient_gets_none() -> None:
    def of_detached(m: Any, x: torch.Tensor) -> torch.Tensor:
        return x.tanh() + m.c.detach()[:0].sum()

    plan = check(Module(of_detached, c=weight(4)), torch.randn(5, 8), unused=True)
    (step,) = fused_steps(plan)
    assert calls(plan) == ["detach"] and {step.operands[name] for name in step.wanted} == {"given_0"}
    assert "c" not in step.reads
    module = Module(lambda m, x: x.tanh() + m.b[:0].sum())
    module.register_buffer("b", torch.randn(4))
    (step,) = fused_steps(check(module, torch.randn(5, 8)))
    assert {*step.reads} == {"given_0", "b"} and {step.operands[name] for name in step.wanted} == {"given_0"}


def test_sums_of_some_elements_are_read() -> None:
    """Though PyTorch adds them up, as it does in another precision."""
    module = Module(lambda m, x: x.tanh() + m.c[:2].sum(dtype=torch.float64).float(), c=weight(4))
    assert "sum" in calls(check(module, torch.randn(5, 8), gradients=False))


def test_kernels_that_are_no_programs_read_the_sums() -> None:
    conv = nn.Conv2d(3, 8, 3)
    plan = planned(
        Module(lambda m, x: F.relu(m.conv(x)) + m.c[:0].sum(), conv=conv, c=weight(4)), torch.randn(2, 3, 9, 9)
    )
    assert calls(plan) == ["slice", "sum"] and not isinstance(fused_steps(plan)[0].compute, Program)
