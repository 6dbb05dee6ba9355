"""A Mamba block (Gu and Dao 2023): causal depthwise convolution, selective scan by chunks of cumulative sums."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, dim, inner, state, rank, chunk):
        super().__init__()
        self.inner, self.state, self.rank, self.chunk = inner, state, rank, chunk
        self.norm = nn.LayerNorm(dim)
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.x_proj = nn.Linear(inner, rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(inner, 1) * 0.5)
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, dim, bias=False)

    def scan(self, u, delta, b, c):
        """State by state over chunks: inside of one by cumulative sums of logarithms."""
        batch, length, _ = u.shape
        decay = delta.unsqueeze(-1) * -torch.exp(self.A_log)
        fed = delta.unsqueeze(-1) * b.unsqueeze(2) * u.unsqueeze(-1)
        carried = torch.zeros(batch, self.inner, self.state, dtype=u.dtype, device=u.device)
        outputs = []
        for start in range(0, length, self.chunk):
            log = torch.cumsum(decay[:, start : start + self.chunk], dim=1)
            inside = torch.cumsum(fed[:, start : start + self.chunk] * torch.exp(-log), dim=1)
            states = torch.exp(log) * (inside + carried.unsqueeze(1))
            carried = states[:, -1]
            outputs.append((states * c[:, start : start + self.chunk].unsqueeze(2)).sum(-1))
        return torch.cat(outputs, dim=1) + u * self.D

    def forward(self, x):
        u, gate = self.in_proj(self.norm(x)).chunk(2, dim=-1)
        u = self.conv1d(u.transpose(1, 2))[:, :, : u.size(1)].transpose(1, 2)
        u = F.silu(u)
        dt, b, c = self.x_proj(u).split([self.rank, self.state, self.state], dim=-1)
        y = self.scan(u, F.softplus(self.dt_proj(dt)), b, c)
        return x + self.out_proj(y * F.silu(gate))


batch_size = 8
length = 256
dim = 256
inner = 512
state = 16
rank = 16
chunk = 8
SMALL = {"batch_size": 2, "length": 12, "dim": 12, "inner": 16, "state": 4, "rank": 2, "chunk": 4}


def get_inputs():
    return [torch.randn(batch_size, length, dim)]


def get_init_inputs():
    return [dim, inner, state, rank, chunk]
