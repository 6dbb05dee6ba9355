"""Rewritten modules on the emulator: outputs and gradients of the kernels, beside the module in float64."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from crucible.capture import trace
from crucible.emission.file import emit
from crucible.fusing import fuse
from crucible.plan.planner import fuse as plan
from crucible.schedule.machine import H200, MACHINES
from support import some


class Folded(nn.Module):
    """Each kind of rewrite once; by day every second of them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(20, 24)
        self.space = nn.ConvTranspose2d(3, 4, 3, 2, 1, 1)
        self.depth = nn.ConvTranspose3d(3, 5, 3, 1, 1)
        self.pooled = nn.Conv2d(3, 4, 3)
        self.turned = nn.ConvTranspose3d(3, 4, 3, 2, 1)
        self.grouped, self.norm = nn.Conv3d(3, 6, 3), nn.GroupNorm(3, 6)
        self.batched, self.batch = nn.ConvTranspose3d(3, 4, 3), nn.BatchNorm3d(4)
        self.term = nn.Parameter(torch.randn(24))

    def forward(self, rows: torch.Tensor, plane: torch.Tensor, volume: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.fc(rows).max(1, keepdim=True).values
        every: list[Callable[[], torch.Tensor]] = [
            lambda: (self.fc(rows) / 2 - self.term).mean(1, keepdim=True).sigmoid(),
            lambda: F.avg_pool1d(self.fc(rows).unsqueeze(1), 4).squeeze(1).tanh(),
            lambda: torch.logsumexp(self.space(plane).mean((2, 3), keepdim=True), 1),
            lambda: torch.softmax(self.depth(volume).mean(2, keepdim=True), 1),
            lambda: F.avg_pool2d(self.pooled(plane), 4).sigmoid(),
            lambda: F.avg_pool3d(self.turned(volume) * 0.5, 2),
            lambda: self.norm(F.hardswish(self.grouped(volume))).mean((2, 3, 4)),
            lambda: F.adaptive_avg_pool3d(self.batch(self.batched(volume) * 2), 1),
            lambda: F.gelu(y - y.mean(1, keepdim=True)),
            lambda: F.dropout(torch.clamp(torch.min(self.fc(rows), torch.tensor(0.0)), 0, 1), 0.2),
        ]
        return tuple(made() for made in some(every, 2))


@pytest.mark.slow
def test_rewritten_modules_compute_the_same_on_the_emulator(no_faults: object, monkeypatch: pytest.MonkeyPatch) -> None:
    free = replace(H200, choices=replace(H200.choices, launch_bytes=0))
    monkeypatch.setitem(MACHINES, "h200", free)  # a GPU on which a small kernel takes no time
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    module = Folded()
    exact = copy.deepcopy(module).double()
    given = [torch.randn(32, 20), torch.randn(2, 3, 9, 10), torch.randn(2, 3, 5, 6, 6)]
    given = [each.requires_grad_() for each in given]
    wide = [each.detach().double().requires_grad_() for each in given]
    fused = fuse(module, *given, emulate=True)
    found, expected = fused(*given), exact(*wide)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)
    cotangents = [torch.randn_like(each) for each in found]
    ours = torch.autograd.grad(found, [*given, *fused.parameters()], cotangents, allow_unused=True)
    upstream = [each.double() for each in cotangents]
    theirs = torch.autograd.grad(expected, [*wide, *exact.parameters()], upstream, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        if one is None or other is None:
            assert one is other
            continue
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4 * float(other.abs().max()) + 1e-6)
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(buffer.double(), exact.get_buffer(name).double(), rtol=1e-5, atol=1e-5)
    assert not any(buffer.requires_grad for buffer in module.buffers())


def test_what_is_made_of_detached_values_takes_no_gradient() -> None:
    """As in eager PyTorch; kernels are not needed to see it."""

    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(20, 24)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.fc(x)
            return y * 2, y.detach() * 3

    text = emit(plan(trace(Detached(), [torch.randn(5, 20)])), "detached")
    assert re.search(r"fused_\w+\(linear\w*\.detach\(\)", text) or re.search(r"fused_\w+\(fc\w*\.detach\(\)", text)
