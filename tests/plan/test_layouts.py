"""Which convolutions run channels-last, who converts, and that modules return tensors as eager PyTorch lays them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from test_plans import Module, calls, check, kernels, planned
from torch import nn

from crucible.plan.layouts import channels_last
from crucible.plan.steps import Call, Plan


def lies_channels_last(plan: Plan, name: str) -> bool:
    return plan.types[name].strides == channels_last(plan.types[name].shape)


def convolutions(plan: Plan) -> dict[str, bool]:
    """Whether each runs channels-last, by its result's name."""
    steps = [step for step in plan.steps if isinstance(step, Call) and "conv" in step.operation.kind]
    return {step.results[0]: lies_channels_last(plan, step.results[0]) for step in steps}


def returns_as_eager(plan: Plan, module: nn.Module, *inputs: torch.Tensor) -> bool:
    outputs = module(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    found = [plan.types[name].strides for name in plan.graph.outputs]
    return found == [output.stride() for output in outputs]


X = (2, 4, 5, 6)
MANY = 68
"""More channels than convolutions of ours take."""


def test_an_input_is_laid_for_the_convolution_and_the_result_as_in_eager() -> None:
    module = Module(lambda m, x: F.relu(m.conv(x)), conv=nn.Conv2d(4, MANY, 3))
    plan = check(module, torch.randn(X))
    assert kernels(plan) == ["inputs_0_channels_last", "bias_relu"]
    assert convolutions(plan) == {"conv_without_bias": True}
    assert "channels-last" in next(step.why for step in plan.steps if isinstance(step, Call))
    assert returns_as_eager(plan, module, torch.randn(X, dtype=torch.float64))


def test_an_input_that_lies_so_is_taken_as_it_is() -> None:
    module = Module(lambda m, x: F.relu(m.conv(x)), conv=nn.Conv2d(4, MANY, 3))
    plan = planned(module, torch.randn(X).to(memory_format=torch.channels_last))
    assert kernels(plan) == ["bias_relu"]
    assert lies_channels_last(plan, plan.graph.outputs[0])


def test_a_chain_in_front_writes_for_the_convolution() -> None:
    module = Module(lambda m, x: F.relu(m.conv(x.tanh())), conv=nn.ConvTranspose2d(4, MANY, 3, 2))
    plan = check(module, torch.randn(X))
    assert kernels(plan) == ["tanh", "bias_relu"]
    assert lies_channels_last(plan, "tanh")


def test_between_convolutions_nothing_is_converted() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.last(F.max_pool2d(F.relu(self.conv(x)), 2))) + self.shortcut(x)

    convs = {
        "conv": nn.Conv2d(4, MANY, 3, padding=1),
        "last": nn.Conv2d(MANY, MANY, 1),
        "shortcut": nn.Conv2d(4, MANY, 2, 2),
    }
    module = Module(forward, **convs)
    plan = check(module, torch.randn(2, 4, 6, 8), gradients=False)
    assert all(convolutions(plan).values()) and len(convolutions(plan)) == 3
    assert [name for name in kernels(plan) if "channels_last" in name] == ["inputs_0_channels_last"]
    assert lies_channels_last(plan, "max_pool2d")
    assert returns_as_eager(plan, module, torch.randn(2, 4, 6, 8, dtype=torch.float64))


def test_a_value_that_is_returned_too_lies_as_in_eager() -> None:
    def forward(self: Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.relu(self.conv(x))
        return y, F.relu(self.last(y))

    module = Module(forward, conv=nn.Conv2d(4, MANY, 3), last=nn.Conv2d(MANY, 4, 1))
    plan = check(module, torch.randn(X))
    assert kernels(plan) == ["inputs_0_channels_last", "bias_relu", "relu_channels_last", "bias_relu_2"]
    assert returns_as_eager(plan, module, torch.randn(X, dtype=torch.float64))


def test_pytorch_is_given_tensors_as_it_would_lay_them() -> None:
    def forward(self: Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.softmax(self.conv(x), 1)
        return F.softmax(y, 2), torch.cumsum(y, 1).tanh()

    module = Module(forward, conv=nn.Conv2d(4, MANY, 3))
    plan = check(module, torch.randn(X))
    assert calls(plan) == ["conv2d", "cumsum"]
    assert lies_channels_last(plan, "softmax")
    assert "softmax_contiguous" in kernels(plan)
    assert returns_as_eager(plan, module, torch.randn(X, dtype=torch.float64))


def returned_and_read(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return y, F.relu(y)


LEFT: dict[str, tuple[Callable[..., object], nn.Module, tuple[int, ...], torch.dtype]] = {
    "few channels": (lambda m, x: F.relu(m.conv(x)), nn.Conv2d(3, MANY, 3), (2, 3, 5, 6), torch.float32),
    "odd channels": (lambda m, x: F.relu(m.conv(x)), nn.Conv2d(4, 67, 3), X, torch.float32),
    "four halves": (lambda m, x: F.relu(m.conv(x)), nn.Conv2d(4, MANY, 3), X, torch.bfloat16),
    "groups": (lambda m, x: F.relu(m.conv(x)), nn.Conv2d(4, MANY * 2, 3, groups=2), X, torch.float32),
    "double": (lambda m, x: F.relu(m.conv(x)), nn.Conv2d(4, 8, 3), X, torch.float64),
    "one place": (lambda m, x: F.relu(m.conv(x)), nn.Conv2d(4, MANY, 1), (2, 4, 1, 1), torch.float32),
    "volumes": (lambda m, x: F.relu(m.conv(x)), nn.Conv3d(4, MANY, 3), (2, 4, 5, 6, 7), torch.float32),
    "returned": (lambda m, x: returned_and_read(m.conv(x)), nn.Conv2d(4, MANY, 3), X, torch.float32),
    "read by pytorch": (lambda m, x: torch.cumsum(m.conv(x), 1), nn.Conv2d(4, MANY, 3), X, torch.float32),
}


@pytest.mark.parametrize("name", LEFT)
def test_others_are_left_as_they_are(name: str) -> None:
    function, conv, shape, dtype = LEFT[name]
    plan = planned(Module(function, conv=conv).to(dtype), torch.randn(shape, dtype=dtype))
    made = [step.results[0] for step in plan.steps if isinstance(step, Call)]
    strides = {name: plan.types[name].strides for name in made if "conv" in name}
    assert strides and all(dense[-1] == 1 or shape[-1] == 1 for dense in strides.values())
    assert not any(name.endswith("channels_last") for name in kernels(plan))


def test_one_tap_behind_a_convolution_of_ours_is_not_laid_channels_last() -> None:
    """Nor behind what follows that; elsewhere it is."""
    last = nn.Conv2d(8, MANY, 1)
    for chain in (lambda y: y, F.relu):
        module = Module(lambda m, x, c=chain: F.silu(m.last(c(m.conv(x)))), conv=nn.Conv2d(4, 8, 3), last=last)
        plan = check(module, torch.randn(X), gradients=False)
        assert calls(plan) == ["conv2d"] and not any("channels_last" in name for name in kernels(plan))
        assert list(convolutions(plan).values()) == [False]
    plan = check(Module(lambda m, x: F.silu(m.last(x)), last=last), torch.randn(2, 8, 5, 6), gradients=False)
    assert list(convolutions(plan).values()) == [True]


def depthwise(channels: int, taps: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, taps, stride, taps // 2, groups=channels)


def between(m: Module, x: torch.Tensor) -> torch.Tensor:
    return F.relu(m.conv(torch.tanh(x)))


@pytest.mark.parametrize(("taps", "stride"), [(3, 1), (3, 2), (5, 1)])
def test_a_depthwise_convolution_between_kernels_is_pytorchs_channels_last(taps: int, stride: int) -> None:
    plan = check(Module(between, conv=depthwise(16, taps, stride)), torch.randn(2, 16, 9, 10))
    assert calls(plan) == ["conv2d"] and kernels(plan) == ["tanh", "bias_relu"]
    assert convolutions(plan) == {"conv_without_bias": True} and lies_channels_last(plan, "tanh")


@pytest.mark.parametrize(
    ("forward", "conv"),
    [
        (lambda m, x: F.relu(m.conv(x)), depthwise(16, 3)),  # of an input, which lies as it lies
        (lambda m, x: m.conv(torch.tanh(x)), depthwise(16, 3)),  # of an output
        (between, depthwise(16, 7)),  # whose weight's gradient cuDNN has no good kernel for
        (between, nn.Conv2d(16, 32, 3, groups=16)),  # two channels a group
        (between, depthwise(10, 3)),  # channels that do not fill 16 bytes
    ],
)
def test_other_depthwise_convolutions_are_not(forward: Callable[..., torch.Tensor], conv: nn.Conv2d) -> None:
    plan = check(Module(forward, conv=conv), torch.randn(2, conv.in_channels, 9, 10), gradients=False)
    assert not any(convolutions(plan).values())


def test_factors_of_channels_that_ours_made_do_not_decide_a_projections_layout() -> None:
    """Behind squeeze and excitation, whose small convolutions are ours."""

    def forward(m: Module, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(m.depthwise(torch.tanh(x)))
        return F.relu(m.project(y * torch.sigmoid(m.expand(F.silu(m.reduce(y.mean((2, 3), keepdim=True)))))))

    convs = {"depthwise": depthwise(16, 3), "reduce": nn.Conv2d(16, 4, 1), "expand": nn.Conv2d(4, 16, 1)}
    module = Module(forward, project=nn.Conv2d(16, MANY, 1), **convs)
    plan = check(module, torch.randn(2, 16, 9, 10), gradients=False)
    assert convolutions(plan)["project_without_bias"]


def test_tensors_of_three_dims_are_concatenated_as_they_lie() -> None:
    """What `cat` makes of them is contiguous all the same."""

    def forward(m: Module, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([m.token.expand(2, -1, -1), F.relu(m.conv(x)).flatten(2).transpose(1, 2)], 1) * 2

    module = Module(forward, conv=nn.Conv2d(4, MANY, 3), token=torch.randn(1, 1, MANY))
    plan = check(module, torch.randn(X))
    joined = next(step for step in plan.steps if isinstance(step, Call) and step.operation.kind == "cat")
    assert [plan.types[name].strides[-1] for name in joined.operation.inputs] == [1, 1]
    assert plan.types[joined.results[0]].strides == (13 * MANY, MANY, 1)
    assert returns_as_eager(plan, module, torch.randn(X, dtype=torch.float64))


def test_channels_between_convolutions_are_put_side_by_side_as_these_lie() -> None:
    """As blocks of a DenseNet and the way up of a U-Net have them."""

    def forward(m: Module, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(m.first(torch.tanh(x)))
        return F.relu(m.last(torch.cat([y, m.up(y)], 1)))

    convs = {"first": nn.Conv2d(4, MANY, 3), "up": nn.ConvTranspose2d(MANY, MANY, 1), "last": nn.Conv2d(2 * MANY, 4, 1)}
    module = Module(forward, **convs)
    plan = check(module, torch.randn(X))
    assert all(convolutions(plan).values()) and lies_channels_last(plan, "cat")
    assert not [name for name in kernels(plan) if "channels_last" in name or "contiguous" in name]
    assert returns_as_eager(plan, module, torch.randn(X, dtype=torch.float64))


@pytest.mark.parametrize(
    "forward",
    [
        lambda m, x: torch.cat([F.relu(m.first(x)), torch.sin(x[..., 1:-1, 1:-1])], 1),  # an output
        lambda m, x: F.relu(m.wide(torch.cat([torch.sin(x), torch.cos(x)], 3))),  # rows
    ],
)
def test_what_else_is_put_side_by_side_lies_as_in_eager(forward: Callable[..., torch.Tensor]) -> None:
    module = Module(forward, first=nn.Conv2d(4, MANY, 3), wide=nn.Conv2d(4, MANY, 3))
    plan = check(module, torch.randn(X), gradients=False)
    assert not lies_channels_last(plan, "cat") and returns_as_eager(plan, module, torch.randn(X, dtype=torch.float64))
