"""Plans of small modules: what shares a kernel, and that it computes what the module does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from interpret import run
from torch import nn

from crucible.capture import trace
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Fused, Plan


class Module(nn.Module):
    """A function with some parameters."""

    def __init__(self, function: Callable[..., object], **parameters: object) -> None:
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            if isinstance(value, nn.Module):
                setattr(self, name, value)
            elif isinstance(value, torch.Tensor):
                self.register_parameter(name, nn.Parameter(value))

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(self, *inputs)


def planned(module: nn.Module, *inputs: torch.Tensor) -> Plan:
    return fuse(trace(module, inputs))


def check(module: nn.Module, *inputs: torch.Tensor, gradients: bool = True) -> Plan:
    """The plan, after it was found to compute what the module does, in float64, gradients included."""
    plan = planned(module.float(), *(t.float() for t in inputs))
    module, inputs = module.double(), tuple(t.double().requires_grad_(gradients) for t in inputs)
    expected = module(*inputs)
    outputs = expected if isinstance(expected, tuple) else (expected,)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    tensors = {value.name: t for value, t in zip(plan.graph.inputs, inputs, strict=True)}
    tensors |= {p.value.name: state[p.names[0]] for p in plan.graph.parameters}
    tensors |= {c.value.name: c.tensor.double() for c in plan.graph.constants}
    found = run(plan, tensors)
    for one, other in zip(found, outputs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    if gradients:
        cotangents = [torch.randn_like(each) for each in outputs]
        wanted = [t for t in (*inputs, *module.parameters()) if t.requires_grad]
        theirs = torch.autograd.grad(outputs, wanted, cotangents, retain_graph=True)
        ours = torch.autograd.grad(found, wanted, cotangents)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)
    return plan


def kernels(plan: Plan) -> list[str]:
    return [step.name for step in plan.steps if isinstance(step, Fused)]


def calls(plan: Plan) -> list[str]:
    return [step.operation.kind for step in plan.steps if isinstance(step, Call)]


def test_a_chain_behind_a_convolution_is_one_kernel_and_takes_its_bias() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = F.leaky_relu(self.conv(x), 0.2) + self.sum
        return F.gelu(torch.clamp(y, min=-1, max=1))

    module = Module(forward, conv=nn.Conv3d(2, 4, 3), sum=torch.randn(4, 1, 1, 1))
    plan = check(module, torch.rand(2, 2, 4, 5, 6))
    assert calls(plan) == ["conv3d"]
    assert kernels(plan) == ["bias_leaky_relu_add_clamp_gelu"]


def test_softmax_of_a_flattened_volume_and_a_scale() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = torch.clamp(self.conv(x), 0, 1)
        return F.softmax(y.flatten(2), dim=2).reshape(y.shape) * self.scale

    module = Module(forward, conv=nn.ConvTranspose3d(2, 4, 3, 2, 1, 1), scale=torch.randn(1, 4, 1, 1, 1))
    plan = check(module, torch.rand(2, 2, 2, 3, 4))
    assert len(kernels(plan)) == 1


def test_a_pool_takes_the_chain_before_it() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = F.leaky_relu(self.conv(x), 0.2) * self.multiplier
        return F.max_pool3d(F.leaky_relu(y, 0.2), 2) + self.multiplier

    module = Module(forward, conv=nn.ConvTranspose3d(2, 4, 3, 2, 1, 1), multiplier=torch.randn(4, 1, 1, 1))
    plan = check(module, torch.rand(2, 2, 2, 3, 4), gradients=False)
    assert len(kernels(plan)) == 1


NORMS: dict[str, tuple[Callable[..., torch.Tensor], dict[str, object], tuple[int, ...]]] = {
    "layer_norm": (lambda m, x: m.norm(x).tanh(), {"norm": nn.LayerNorm(6)}, (3, 5, 6)),
    "layer_norm_2d": (lambda m, x: m.norm(x) * 2, {"norm": nn.LayerNorm([5, 6])}, (3, 5, 6)),
    "group_norm": (lambda m, x: F.silu(m.norm(x)), {"norm": nn.GroupNorm(2, 6)}, (3, 6, 4, 5)),
    "instance_norm": (lambda m, x: m.norm(x) / 2, {"norm": nn.InstanceNorm2d(4)}, (3, 4, 5, 6)),
    "instance_norm_affine": (lambda m, x: m.norm(x), {"norm": nn.InstanceNorm2d(4, affine=True)}, (3, 4, 5, 6)),
    "rms_norm": (lambda m, x: F.rms_norm(x, (6,), m.weight, 1e-6), {"weight": torch.rand(6)}, (3, 5, 6)),
    "rms_by_hand": (lambda m, x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), {}, (3, 5, 6)),
    "batch_norm": (lambda m, x: F.relu(m.norm(x)), {"norm": nn.BatchNorm2d(4).eval()}, (3, 4, 5, 6)),
    "standardised": (
        lambda m, x: (x - x.mean((1, 2), keepdim=True)) / (x.std((1, 2), keepdim=True) + 1),
        {},
        (3, 4, 5),
    ),
}


@pytest.mark.parametrize("name", sorted(NORMS))
def test_norms_are_one_kernel(name: str) -> None:
    function, parameters, shape = NORMS[name]
    plan = check(Module(function, **parameters), torch.randn(shape))
    assert len(kernels(plan)) == 1
    assert not calls(plan)


REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "softmax_channels": lambda m, x: F.softmax(x * 2, dim=1).sigmoid(),
    "log_softmax": lambda m, x: F.log_softmax(x.relu(), dim=-1),
    "logsumexp": lambda m, x: torch.logsumexp(x, dim=(2, 3), keepdim=True).relu(),
    "mean_and_minus": lambda m, x: x - x.mean(dim=1, keepdim=True),
    "sum": lambda m, x: (x * 3).sum(dim=(-1, -2)).tanh(),
    "amax": lambda m, x: torch.amax(x, dim=1) + 1,
    "amin": lambda m, x: torch.amin(x, dim=(2, 3), keepdim=True) * 2,
    "whole": lambda m, x: x.square().mean(),
    "transposed": lambda m, x: x.transpose(1, 3).exp() + x.permute(0, 3, 2, 1),
    "vector_norm": lambda m, x: x / torch.linalg.vector_norm(x, dim=1, keepdim=True),
}


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_reductions_are_one_kernel(name: str) -> None:
    plan = check(Module(REDUCTIONS[name]), torch.randn(3, 4, 5, 6))
    assert len(kernels(plan)) == 1
    assert not calls(plan)


def test_reductions_of_other_dims_are_kernels_of_their_own() -> None:
    plan = check(Module(lambda m, x: F.softmax(F.softmax(x, 1), 2)), torch.randn(3, 4, 5))
    assert len(kernels(plan)) == 2


def test_a_mean_that_is_spread_again_without_its_dim() -> None:
    check(Module(lambda m, x: x - x.mean(2)[:, :, None]), torch.randn(3, 4, 5))


def test_what_no_rule_covers_stays_a_call_between_kernels() -> None:
    plan = check(Module(lambda m, x: torch.cumsum(x.tanh(), 1) * 2), torch.randn(3, 4))
    assert calls(plan) == ["cumsum"]
    assert kernels(plan) == ["tanh", "mul"]


def test_conditions_live_inside_of_kernels() -> None:
    plan = check(Module(lambda m, x: torch.where((x > 0) & (x < 1), x * 2, x.sin()) * (x > -1)), torch.randn(5, 7))
    assert kernels(plan) == ["gt_lt_bitwise_and_mul_sin_where"]


def test_several_outputs_and_a_residual() -> None:
    def forward(self: Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x)
        return F.silu(y) + x, y.softmax(-1)

    plan = check(Module(forward, linear=nn.Linear(6, 6)), torch.randn(4, 6))
    assert calls(plan) == ["linear"]
    assert len(kernels(plan)) == 2


def test_channels_last_stays_channels_last() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    plan = planned(Module(lambda m, x: x.relu() + 1), x)
    assert plan.types[plan.graph.outputs[0]].strides == x.stride()
