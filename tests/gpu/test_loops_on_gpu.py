"""Loops whose turns are taken together, cells, and parts of tensors that kernels read and write where they lie."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import crucible

B, T, D = 6, 24, 64


class Net(nn.Module):
    """[B, T, D], by what `function` says."""

    def __init__(self, function: Callable[[Net, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.layer, self.hidden = nn.Linear(D, 4 * D), nn.Linear(D, 4 * D)
        self.lstm, self.gru = nn.LSTMCell(D, D), nn.GRUCell(D, D)
        self.cos, self.sin = nn.Parameter(torch.randn(T, D)), nn.Parameter(torch.randn(T, D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def written_out(m: Net, x: torch.Tensor) -> torch.Tensor:
    h, c, states = x[:, 0], x[:, 1], []
    for turn in range(T):
        i, f, g, o = (m.layer(x[:, turn]) + m.hidden(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states, 1)


def of_cells(m: Net, x: torch.Tensor) -> torch.Tensor:
    h, state, states = x[:, 0], (x[:, 0], x[:, 1]), []
    for part in x.unbind(1):
        h = m.gru(part, h)
        state = m.lstm(h, state)
        states.append(state[0])
    return torch.stack(states, 1)


def scan(m: Net, x: torch.Tensor) -> torch.Tensor:
    carried, made = torch.zeros_like(x[:, 0]), []
    for start in range(0, T, 4):
        log = torch.cumsum(-x[:, start : start + 4].abs(), 1)
        states = torch.exp(log) * (carried.unsqueeze(1) + log * m.cos[:4])
        carried = states[:, -1]
        made.append((states * m.sin[start : start + 4]).sum(-1))
    return torch.cat(made, 1)


def halves(m: Net, x: torch.Tensor) -> torch.Tensor:
    q = m.layer(x)[..., :D].contiguous().cumsum(1)
    a, b = q.chunk(2, -1)
    return (q * m.cos + torch.cat((-b, a), -1) * m.sin).cumsum(0)


def pairs(m: Net, x: torch.Tensor) -> torch.Tensor:
    q = m.layer(x).cumsum(1)[..., :D].contiguous()
    turned = torch.stack((-q[..., 1::2], q[..., ::2]), -1).flatten(-2)
    return (q * m.cos + turned * m.sin).cumsum(0)


def joined(m: Net, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.sin(m.layer(x)), m.hidden(x), torch.cos(m.hidden(x))], 1).cumsum(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [written_out, of_cells, scan, halves, pairs, joined])
def test_it_computes_what_the_module_does(
    function: Callable[[Net, torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    net = Net(function).cuda().to(dtype)
    x = torch.randn(B, T, D, device="cuda", dtype=dtype)
    fused, exact, found = crucible.fuse(copy.deepcopy(net), x), copy.deepcopy(net).double(), []
    for module, given in ((fused, x), (net, x), (exact, x.double())):
        leaf = given.clone().requires_grad_()
        out = module(leaf)
        cotangent = torch.linspace(-1, 1, out.numel(), device="cuda").view_as(out).to(out.dtype)
        wanted = [leaf, *module.parameters()]
        with torch.no_grad():
            again = module(given)
        found.append([out, again, *torch.autograd.grad(out, wanted, cotangent, allow_unused=True)])
    for own, eager, right in zip(*found, strict=True):
        assert (own is None) == (right is None)
        if own is not None and right is not None and eager is not None:
            error, noise = (float((each.double() - right).norm()) for each in (own, eager))
            assert error <= 2 * noise + 2e-3 * float(right.norm())
