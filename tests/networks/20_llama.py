"""Llama blocks (Touvron et al. 2023): RMS norm, rotary embeddings, grouped queries, SwiGLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x.float() * torch.rsqrt(variance + self.eps)).type_as(x)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


class Block(nn.Module):
    def __init__(self, dim, heads, kv_heads, hidden):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, dim // heads
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.v_proj = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)
        self.input_norm, self.post_norm = RMSNorm(dim), RMSNorm(dim)

    def attention(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.size).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        groups = self.heads // self.kv_heads
        k = k[:, :, None].expand(b, self.kv_heads, groups, t, self.size).reshape(b, self.heads, t, self.size)
        v = v[:, :, None].expand(b, self.kv_heads, groups, t, self.size).reshape(b, self.heads, t, self.size)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.input_norm(x), cos, sin)
        y = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Model(nn.Module):
    def __init__(self, vocabulary, length, dim, heads, kv_heads, hidden, depth):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(Block(dim, heads, kv_heads, hidden) for _ in range(depth))
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        size = dim // heads
        frequencies = 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos()[None, None], persistent=False)
        self.register_buffer("sin", angles.sin()[None, None], persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos[:, :, : ids.size(1)], self.sin[:, :, : ids.size(1)])
        return self.head(self.norm(x))


batch_size = 4
length = 1024
vocabulary = 16384
dim = 1024
heads = 16
kv_heads = 4
hidden = 2816
depth = 2
SMALL = {
    "batch_size": 2, "length": 12, "vocabulary": 40, "dim": 32, "heads": 4, "kv_heads": 2, "hidden": 48, "depth": 2
}  # fmt: skip


def get_inputs():
    return [torch.randint(0, vocabulary, (batch_size, length))]


def get_init_inputs():
    return [vocabulary, length, dim, heads, kv_heads, hidden, depth]
