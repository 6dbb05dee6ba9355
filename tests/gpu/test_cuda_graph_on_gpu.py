"""`fuse(cuda_graph=True)`: the same values, gradients and buffers as in eager, at every call."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import crucible

CLOSE = {"rtol": 5e-3, "atol": 5e-3}
"""Convolutions round to TF32."""


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.SiLU(), nn.Flatten(), nn.Linear(16 * 30 * 30, 8)]
    return nn.Sequential(*layers).cuda()


def drawn(seed: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(4, 3, 32, 32, device="cuda", generator=generator)


def test_steps_of_training_are_those_of_eager() -> None:
    eager = network()
    fused = crucible.fuse(copy.deepcopy(eager), drawn(0), cuda_graph=True)
    optimizers = [torch.optim.SGD(each.parameters(), 1e-3) for each in (eager, fused)]
    for step in range(4):
        for module, optimizer in zip((eager, fused), optimizers, strict=True):
            optimizer.zero_grad()
            module(drawn(step)).square().mean().backward()
            optimizer.step()
    for (name, own), other in zip(fused.state_dict().items(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(own, other, **CLOSE, msg=name)
    fused.eval(), eager.eval()
    with torch.no_grad():
        for step in range(4, 7):
            torch.testing.assert_close(fused(drawn(step)), eager(drawn(step)), **CLOSE)


def test_inputs_take_gradients_and_moved_parameters_are_followed() -> None:
    eager = network().eval()
    fused = crucible.fuse(copy.deepcopy(eager), drawn(0), cuda_graph=True)
    x = drawn(1).requires_grad_()
    for _ in range(2):
        (own,) = torch.autograd.grad(fused(x).sum(), x)
        (other,) = torch.autograd.grad(eager(x).sum(), x)
        torch.testing.assert_close(own, other, **CLOSE)
        weight = eager.get_parameter("0.weight").detach() * 2
        for module in (eager, fused):
            module.get_parameter("0.weight").data = weight.clone()  # at another place


def test_dropout_draws_anew_at_each_call() -> None:
    module, x = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.GELU()).cuda(), torch.ones(8, 64, device="cuda")
    fused = crucible.fuse(module, x, cuda_graph=True)
    first, second = (fused(x).detach().clone() for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("trains", [False, True])
def test_a_call_is_one_launch(trains: bool) -> None:
    module, x = network(), drawn(0)
    fused = crucible.fuse(module, x, cuda_graph=True)
    with torch.set_grad_enabled(trains):
        fused(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            fused(x)
    launches = [event for event in profile.events() if "Launch" in event.name]
    assert [event.name for event in launches if "Graph" in event.name] and len(launches) == 1


@pytest.mark.parametrize("trains", [False, True])
def test_what_is_no_tensor_is_returned_beside_them(trains: bool) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> dict[str, object]:
            return {"loss": None, "y": (torch.tanh(self.layer(x)) * 2).cumsum(-1), "n": len(x)}

    module, x = Two().cuda(), torch.randn(8, 64, device="cuda")
    fused = crucible.fuse(module, x, cuda_graph=True)
    with torch.set_grad_enabled(trains):
        for _ in range(2):
            found, expected = fused(x), module(x)
            assert list(found) == ["loss", "y", "n"] and found["loss"] is None and found["n"] == len(x)
            torch.testing.assert_close(found["y"], expected["y"], rtol=1e-4, atol=1e-4)
