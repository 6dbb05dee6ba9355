"""`torch.compile(model, backend="crucible")`, on the emulator: what is fused, and what goes on to Inductor."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch._inductor import config

from crucible import backend
from crucible.errors import MisuseError

CLOSE = {"rtol": 5e-3, "atol": 5e-3}
"""Convolutions round to TF32."""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    backend.decisions.clear()
    with config.patch(cpp_cache_precompile_headers=False):  # 4 s, of use to later modules alone
        yield
    torch.compiler.reset()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5), nn.GELU())


def compiled(module: nn.Module) -> nn.Module:
    return torch.compile(module, backend="crucible", options={"emulate": True})  # type: ignore[return-value]


@pytest.mark.slow
def test_a_network_is_fused_and_trains_as_in_eager() -> None:
    module, x = network(), torch.randn(2, 3, 8, 8)
    eager = copy.deepcopy(module)
    fused = compiled(module)
    for _ in range(2):
        fused(x).square().sum().backward()
        eager(x).square().sum().backward()
        for own, other in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(own.grad, other.grad, **CLOSE)
            own.grad = other.grad = None
    assert backend.decisions == ["a graph of 7 operations is fused"]
    for own, other in zip(module.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(own, other, **CLOSE)
    with torch.no_grad():  # a weight of another tensor, which the same graph is called with
        module[0].weight = nn.Parameter(module[0].weight + 1)
        eager[0].weight = nn.Parameter(eager[0].weight + 1)
    torch.testing.assert_close(fused(x), eager(x), **CLOSE)
    module.eval(), eager.eval()
    torch.testing.assert_close(fused(x), eager(x), **CLOSE)
    assert all(each.endswith("fused") for each in backend.decisions)


@pytest.mark.slow
def test_sizes_that_vary_are_inductors() -> None:
    module, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    varying = torch.compile(module, backend="crucible", options={"emulate": True}, dynamic=True)
    torch.testing.assert_close(varying(x), module(x))
    (said,) = backend.decisions
    assert "is Inductor's: sizes vary from call to call" in said


@pytest.mark.slow
def test_autocast_is_fused() -> None:
    module, x = network(), torch.randn(2, 3, 8, 8)
    module[0].register_parameter("bias", None)  # before a batch norm its gradient is what rounding leaves
    eager = copy.deepcopy(module)
    found = []
    for each in (compiled(module), eager):
        with torch.autocast("cpu", torch.bfloat16):
            out = each(x)
        found.append((out.detach(), *torch.autograd.grad(out.float().square().sum(), list(each.parameters()))))
    assert all(each.endswith("fused") for each in backend.decisions) and backend.decisions
    for own, other in zip(*found, strict=True):
        assert own.dtype == other.dtype
        torch.testing.assert_close(own, other, rtol=3e-2, atol=3e-2 * float(other.abs().max()))


def test_options_are_those_of_fuse() -> None:
    graph = torch.fx.symbolic_trace(nn.ReLU())
    with pytest.raises(MisuseError, match="no option speed: give some of emulate, race, tune"):
        backend.backend(graph, [torch.randn(2)], options={"speed": True})


def test_it_races_inductor_alone() -> None:
    with pytest.raises(MisuseError, match="races Inductor alone: race is True or False, not 'max-autotune'"):
        backend.backend(torch.fx.symbolic_trace(nn.ReLU()), [torch.randn(2)], options={"race": "max-autotune"})


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU; tests/gpu has races")
def test_where_nothing_can_race_inductor_computes() -> None:
    module, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    raced = torch.compile(module, backend="crucible", options={"race": True})
    torch.testing.assert_close(raced(x), module(x))
    (said,) = backend.decisions
    assert "is Inductor's: a race times what is written beside torch.compile, and this machine has no" in said


def test_it_is_known_by_name() -> None:
    assert "crucible" in torch.compiler.list_backends()
