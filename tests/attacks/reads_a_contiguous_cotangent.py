"""Reads the cotangent's memory as if it were contiguous. Expected: wrong

Training: yes
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, g):
        n = g.numel()
        flat = torch.as_strided(g, (min(n, g.untyped_storage().nbytes() // 4),), (1,), 0)
        return flat.repeat(n // len(flat) + 1)[:n].reshape(g.shape).clone()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        return Flat.apply(self.answer(x))
