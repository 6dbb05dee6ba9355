"""minGPT: causal attention written out with a mask that is a buffer, NewGELU."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class CausalSelfAttention(nn.Module):
    def __init__(self, dim, heads, longest):
        super().__init__()
        self.c_attn = nn.Linear(dim, 3 * dim)
        self.c_proj = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))
        self.heads, self.dim = heads, dim

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(self.dim, dim=2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Model(nn.Module):
    def __init__(self, dim, heads, longest, depth):
        super().__init__()
        self.ln1 = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.attn = nn.ModuleList(CausalSelfAttention(dim, heads, longest) for _ in range(depth))
        self.ln2 = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 4 * dim), NewGELU(), nn.Linear(4 * dim, dim)) for _ in range(depth)
        )

    def forward(self, x):
        for ln1, attn, ln2, mlp in zip(self.ln1, self.attn, self.ln2, self.mlp, strict=False):
            x = x + attn(ln1(x))
            x = x + mlp(ln2(x))
        return x


batch_size = 16
length = 512
longest = 1024
dim = 768
heads = 8
depth = 2
SMALL = {"batch_size": 2, "length": 12, "longest": 20, "dim": 32, "heads": 2}


def get_inputs():
    return [torch.randn(batch_size, length, dim)]


def get_init_inputs():
    return [dim, heads, longest, depth]
