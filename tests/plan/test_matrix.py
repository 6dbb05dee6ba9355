"""Which products of matrices are kernels of ours, and that plans with them compute what the module does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from interpret import run
from torch import nn

from crucible.algebra.product import Product
from crucible.capture import trace
from crucible.gpus import H200, known_gpu
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Fused, Plan


class Module(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor], **parameters: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(self, *inputs)


def products(plan: Plan) -> list[Product]:
    return [step.compute for step in plan.steps if isinstance(step, Fused) and isinstance(step.compute, Product)]


def planned(module: nn.Module, *inputs: torch.Tensor) -> Plan:
    """The plan that keeps float32, after it was found to compute what the module does."""
    plan = fuse(trace(module, inputs), tf32=False, gpu=H200)
    tensors = {value.name: t.double() for value, t in zip(plan.graph.inputs, inputs, strict=True)}
    tensors |= {p.value.name: module.get_parameter(p.names[0]).detach().double() for p in plan.graph.parameters}
    tensors |= {c.value.name: c.tensor.double() for c in plan.graph.constants}
    (found,) = run(plan, tensors)
    torch.testing.assert_close(found, module(*inputs).double().detach(), rtol=1e-4, atol=1e-3)
    return plan


ROWS, DEPTH, COLUMNS = 512, 1024, 2048
LINEAR = {"weight": torch.randn(COLUMNS, DEPTH) / 16, "bias": torch.randn(COLUMNS)}
TAKEN = {
    "linear and a chain": (lambda m, x: F.gelu(F.linear(x, m.weight, m.bias)), LINEAR, [(ROWS, DEPTH)]),
    "linear alone": (lambda m, x: F.linear(x, m.weight, m.bias), LINEAR, [(ROWS, DEPTH)]),
    "linear of several dims": (lambda m, x: F.linear(x, m.weight).relu(), LINEAR, [(2, ROWS, DEPTH)]),
    "matmul": (lambda m, x, y: (x @ y).relu(), {}, [(ROWS, DEPTH), (DEPTH, COLUMNS)]),
    "matmul of a transpose": (lambda m, x, y: x @ y.t(), {}, [(ROWS, DEPTH), (COLUMNS, DEPTH)]),
    "of a transpose": (lambda m, x, y: x.t() @ y, {}, [(DEPTH, ROWS), (DEPTH, COLUMNS)]),
    "bmm": (torch.bmm, {}, [(3, ROWS, DEPTH), (3, DEPTH, COLUMNS)]),
    "matmul of four dims": (torch.matmul, {}, [(2, 3, ROWS, DEPTH), (2, 3, DEPTH, COLUMNS)]),
    "addmm": (lambda m, x, y: torch.addmm(m.bias, x, y), LINEAR, [(ROWS, DEPTH), (DEPTH, COLUMNS)]),
    "a square of a matrix": (lambda m, x: x @ x, {}, [(DEPTH, DEPTH)]),
}


def module_of(name: str) -> tuple[nn.Module, list[torch.Tensor]]:
    function, parameters, shapes = TAKEN[name]
    if name in ("bmm", "matmul of four dims"):
        return Module(lambda m, x, y: function(x, y)), [torch.randn(shape) / 4 for shape in shapes]
    return Module(function, **parameters), [torch.randn(shape) / 4 for shape in shapes]


@pytest.mark.parametrize("name", TAKEN)
def test_products_that_keep_float32_are_kernels_of_ours(name: str) -> None:
    module, inputs = module_of(name)
    plan = planned(module, *inputs)
    assert len(products(plan)) == 1
    assert not any(isinstance(s, Call) and s.operation.kind in ("linear", "matmul", "bmm", "addmm") for s in plan.steps)


LEFT = {
    "small": (lambda m, x, y: x @ y, [(8, 16), (16, 8)]),
    "odd depth": (lambda m, x, y: x @ y.t(), [(ROWS, 1023), (COLUMNS, 1023)]),
    "scaled addend": (lambda m, x, y: torch.addmm(y[0, :1], x, y, beta=2), [(ROWS, DEPTH), (DEPTH, COLUMNS)]),
    "expanded batch": (lambda m, x, y: x @ y, [(3, ROWS, DEPTH), (1, DEPTH, COLUMNS)]),
    "half": (lambda m, x, y: x.half() @ y.half(), [(ROWS, DEPTH), (DEPTH, COLUMNS)]),
    "a vector": (lambda m, x, y: x @ y[:, 0], [(ROWS, DEPTH), (DEPTH, COLUMNS)]),
}


@pytest.mark.parametrize("name", LEFT)
def test_others_stay_with_pytorch(name: str) -> None:
    function, shapes = LEFT[name]
    module = Module(function)
    graph = trace(module, [torch.randn(shape) for shape in shapes])
    assert products(fuse(graph, tf32=False, gpu=H200)) == []


def test_where_tf32_is_allowed_or_the_gpu_is_another_they_stay_too() -> None:
    module, inputs = module_of("linear and a chain")
    graph = trace(module, inputs)
    assert products(fuse(graph, tf32=True, gpu=H200)) == []
    assert products(fuse(graph, tf32=False, gpu=known_gpu("a100"))) == []
    assert len(products(fuse(graph, tf32=True, tf32_linear=False, gpu=H200))) == 1


def test_gradients_are_wanted_of_factors_that_take_them() -> None:
    module, inputs = module_of("linear and a chain")
    plan = planned(module, *inputs)
    (step,) = [s for s in plan.steps if isinstance(s, Fused) and isinstance(s.compute, Product)]
    assert {step.operands[name] for name in step.wanted} == {plan.graph.inputs[0].name, "weight"}
