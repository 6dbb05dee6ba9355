"""Kernels that write and read parts of tensors: the same as eager on the emulator, called by operators and by C++."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from crucible.capture import trace
from crucible.emission.file import emit
from crucible.plan.planner import fuse
from crucible.plan.steps import Fused


class Parts(nn.Module):
    """A rotary embedding of a part of a tensor, gates, and what kernels and PyTorch make, joined: with its gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.whole, self.gates = nn.Linear(8, 48, bias=False), nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(5)
        self.angles = nn.Parameter(torch.randn(5, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, _ = self.whole(x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        rotated = [each * self.angles.cos() + self._turned(each) * self.angles.sin() for each in (q, k)]
        gate, value = self.gates(x).chunk(2, -1)
        gated = F.silu(gate) * value
        pairs = x.reshape(2, 5, 4, 2)
        turned = torch.stack([pairs[..., 0] - 2 * pairs[..., 1], 2 * pairs[..., 0] + pairs[..., 1]], -1).flatten(-2)
        y = x.cumsum(0)
        turned = turned * (y * self.angles + torch.stack([-y[..., 1::2], y[..., ::2]], -1).flatten(-2) * x)
        joined = torch.cat([x.sin(), x.cumsum(1), x.exp()], 1)
        normal = torch.cat([F.relu(self.norm(x)), x.cumsum(2)], 1)
        return (
            normal,
            rotated[0] @ rotated[1].transpose(-1, -2),
            joined,
            turned,
            torch.cat([torch.cos(gated + x), x.cumsum(0)], -1),
        )

    @staticmethod
    def _turned(x: torch.Tensor) -> torch.Tensor:
        return torch.cat((-x[..., 4:], x[..., :4]), -1)


def results(forward: Any, module: nn.Module, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Outputs and gradients; those of single outputs too, where the others take no part."""
    torch.manual_seed(1)
    x = torch.randn(2, 5, 8).to(dtype).requires_grad_()
    made = list(forward(module, x))
    wanted = [x, *module.parameters()]
    found = list(made)
    for outputs in (made, made[:1], made[1:3]):
        given = [torch.linspace(-1, 1, each.numel(), dtype=dtype).view(each.shape) for each in outputs]
        found += [
            torch.zeros_like(of) if each is None else each
            for each, of in zip(
                torch.autograd.grad(outputs, wanted, given, retain_graph=True, allow_unused=True), wanted, strict=True
            )
        ]
    return [*found, *(buffer for buffer in module.buffers() if buffer.is_floating_point())]


@pytest.mark.slow
@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("called", ["by operators", "at once"])
def test_parts_of_tensors_are_written_and_read(called: str) -> None:
    plan = fuse(trace(Parts(), [torch.randn(2, 5, 8)]))
    steps = [step for step in plan.steps if isinstance(step, Fused)]
    assert sum(bool(step.joined) for step in steps) == 6
    assert any(step.joined and step.updates for step in steps)
    assert any(name.startswith("grad_cat") for step in steps for name in step.passed.values())
    text = emit(plan, "parts", loader="crucible.emulator")
    assert "torch.cat" not in text and "torch.stack" not in text and ".narrow(" in text
    if called == "at once":
        for asked, instead in (("DispatchKey::CUDA", "DispatchKey::CPU"), ("#ifdef GPU_IS_EMULATED", "#if 0")):
            assert asked in text
            text = text.replace(asked, instead)
    names = types.ModuleType(f"written_parts_{len(called)}")
    sys.modules[names.__name__] = names
    exec(text, names.__dict__)
    found, expected = results(names.forward, Parts()), results(Parts.forward, Parts().double(), torch.float64)
    for one, other in zip(found, expected, strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)
