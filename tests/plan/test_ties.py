"""Maxima of which several elements are the largest: PyTorch gives the first of them the gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from interpret import check
from torch import nn

import crucible
from crucible.capture import trace
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Fused, Plan
from crucible.plan.ties import tied

Forward = Callable[["Net", torch.Tensor], torch.Tensor]


class Net(nn.Module):
    """A product of 24 channels, or features, and what is behind it; zeros are added, as many modules begin with."""

    def __init__(self, behind: Forward, product: nn.Module) -> None:
        super().__init__()
        self.product, self.behind = product, behind
        self.bias = nn.Parameter(torch.zeros(24, *[1] * (2 * isinstance(product, nn.Conv2d))))
        self.factor, self.norm = nn.Parameter(torch.tensor(1.5)), nn.GroupNorm(3, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self, self.product(x))


def linear(behind: Forward) -> Net:
    return Net(behind, nn.Linear(20, 24))


def calls(plan: Plan) -> list[str]:
    return [step.operation.kind for step in plan.steps if isinstance(step, Call)]


JOINED: dict[str, Forward] = {
    "product": lambda m, y: (y * 2).max(1).values.tanh(),
    "least": lambda m, y: (y * 2).min(1, keepdim=True)[0],
    "norm": lambda m, y: m.norm(y).max(1).values,
    "rows": lambda m, y: (y * y.amax(1, keepdim=True).relu()).max(1).values,
    "relu": lambda m, y: y.relu().min(1).values,
    "clamp": lambda m, y: (y.clamp(-0.2, 0.3) * m.factor + m.factor).max(1, keepdim=True)[0],
    "detached": lambda m, y: (h := F.hardtanh(y, -0.1, 0.2)).add(h.clone().detach()).max(1).values.tanh(),
    "number": lambda m, y: torch.min(y, torch.tensor(0.1)).max(1).values,
    "both": lambda m, y: (F.relu6(y) + F.hardsigmoid(y * 9)).max(1).values,
}


@pytest.mark.parametrize("behind", JOINED.values(), ids=JOINED)
def test_a_maximum_whose_place_does_not_count_joins_its_chain(behind: Forward) -> None:
    """Where several elements of a row are its largest, none of them has a slope."""
    torch.manual_seed(1)
    plan = check(linear(behind), torch.randn(16, 20), unused=True)
    assert calls(plan) == ["linear"] and not tied(plan.graph)


COUNTS: dict[str, Forward] = {
    "added": lambda m, y: (y.relu() + m.bias).max(1).values,
    "beside": lambda m, y: (y.relu() + y).max(1).values,
    "chosen": lambda m, y: torch.where(y > 0, y, m.bias).max(1).values,
    "larger": lambda m, y: y.maximum(m.bias).max(1).values,
    "close": lambda m, y: F.hardswish(y).min(1).values,  # near its least many are one number
    "digits": lambda m, y: y.half().max(1).values,
    "digits before": lambda m, y: (y.half().float() * 2).max(1).values,
    "through memory": lambda m, y: ((h := y.relu() + m.bias) @ h.T, h.max(1).values)[1],
}


@pytest.mark.parametrize("behind", COUNTS.values(), ids=COUNTS)
def test_a_maximum_whose_place_counts_is_pytorchs_along_neighbours_in_memory(behind: Forward) -> None:
    graph = trace(linear(behind), [torch.randn(5, 20)])
    assert len(tied(graph)) == 1
    assert {"max", "min"} & {*calls(fuse(graph))}


def test_a_maximum_whose_place_is_read_is_pytorchs() -> None:
    plan = fuse(trace(linear(lambda m, y: (found := y.max(1)).values + found.indices), [torch.randn(5, 20)]))
    assert "max" in calls(plan)


@pytest.mark.parametrize("shape", [(3, 24, 5), (3, 24, 4, 5), (2, 3, 24, 4, 5), (2, 24, 3, 4, 5)])
@pytest.mark.parametrize("least", [False, True])
def test_a_maximum_over_channels_whose_place_counts_is_a_pool(shape: tuple[int, ...], least: bool) -> None:
    dim, ones = shape.index(24), [1] * (len(shape) - shape.index(24) - 1)

    class Channels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(24, *ones))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = (-x if least else x).clamp(-0.5, 0.2) + self.bias
            return (h.min(dim, keepdim=True) if least else h.max(dim, keepdim=True))[0].tanh()

    torch.manual_seed(2)
    plan = check(Channels(), torch.randn(shape), gradients=False)  # those of pools the emulator has
    assert [type(step) for step in plan.steps] == [Fused]


class Several(nn.Module):
    """Behind a convolution, whose results go through memory; of tensors of three, four and five dims."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bias = nn.Conv2d(4, 24, 3), nn.Parameter(torch.zeros(24))
        self.conv.bias.data -= 0.6  # so that zeros are the largest here and there

    def forward(
        self, x: torch.Tensor, three: torch.Tensor, five: torch.Tensor, other: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        y, of_channels = self.conv(x), self.bias[:, None, None]
        return (
            (y.relu() + of_channels).max(1).values,
            (y.relu() - of_channels).min(1, keepdim=True)[0].tanh(),
            (three.clamp(-0.5, 0.2) + self.bias[:, None]).max(1, keepdim=True)[0],
            (five.clamp(-0.2, 0.5) + of_channels).min(2).values,
            (other.clamp(-0.2, 0.5) * self.bias.exp()[:, None, None, None]).max(1).values.exp(),
        )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_those_of_the_first(dtype: torch.dtype, no_faults: object) -> None:
    torch.manual_seed(0)
    module = Several().to(dtype)
    given = [torch.randn(size, dtype=dtype) for size in ((3, 4, 9, 11), (3, 24, 5), (2, 3, 24, 4, 5), (2, 24, 3, 2, 5))]
    for each in given:
        each.requires_grad_()
    eager, fused = copy.deepcopy(module), crucible.fuse(module, *given, emulate=True)
    assert (eager.conv(given[0]).amax(1) < 0).any()
    graph = trace(module, given)
    assert len(tied(graph)) == 5 and not {"max", "min"} & {*calls(fuse(graph))}
    found, expected = fused(*given), eager(*given)
    cotangents = [torch.randn_like(each) for each in expected]
    ours, theirs = (
        torch.autograd.grad(made, [*given, *held.parameters()], cotangents)
        for made, held in ((found, fused), (expected, eager))
    )
    for one, other in (*zip(found, expected, strict=True), *zip(ours, theirs, strict=True)):
        assert (one - other).norm() <= 1e-2 * other.norm()
