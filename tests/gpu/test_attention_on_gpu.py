"""Attention that was written out, by a GPU's own fused kernels: masks of odd sizes, windows, their gradients."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

import crucible
from crucible.capture import trace
from crucible.plan.planner import fuse

BATCH, HEADS, PLACES, FEATURES = 6, 3, 49, 32


class Attention(nn.Module):
    def __init__(self, mask: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        width = HEADS * FEATURES
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn(1, HEADS, PLACES, PLACES))
        self.register_buffer("of_windows", torch.randn(2, PLACES, PLACES))
        self.register_buffer("shut", torch.tril(torch.ones(PLACES, PLACES)))
        self.mask = mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(BATCH, PLACES, 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * FEATURES**-0.5) @ k.transpose(-2, -1)
        if self.mask == "left out":
            scores = scores.masked_fill(self.shut == 0, -math.inf)
        elif self.mask:
            scores = scores + self.table
        if self.mask == "of windows":
            seen = scores.view(BATCH // 2, 2, HEADS, PLACES, PLACES) + self.of_windows.unsqueeze(1).unsqueeze(0)
            scores = seen.view(-1, HEADS, PLACES, PLACES)
        return torch.relu(self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, PLACES, -1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", ["", "learnt", "left out", "of windows"])
def test_it_computes_what_was_written_out(mask: str, dtype: torch.dtype) -> None:
    net = Attention(mask).cuda().to(dtype)
    x = torch.randn(BATCH, PLACES, HEADS * FEATURES, device="cuda", dtype=dtype)
    assert "softmax" not in {each.kind for each in fuse(trace(net, [x])).graph.operations}
    fused, exact, found = crucible.fuse(copy.deepcopy(net), x), copy.deepcopy(net).double(), []
    for module, given in ((fused, x), (net, x), (exact, x.double())):
        out = module(given)
        cotangent = torch.linspace(-1, 1, out.numel(), device="cuda").view_as(out).to(out.dtype)
        found.append([out, *torch.autograd.grad(out, list(module.parameters()), cotangent, allow_unused=True)])
    for own, eager, right in zip(*found, strict=True):
        assert (own is None) == (right is None)
        if own is not None and right is not None and eager is not None:
            error, noise = (float((each.double() - right).norm()) for each in (own, eager))
            assert error <= 2 * noise + 2e-3 * float(right.norm())
