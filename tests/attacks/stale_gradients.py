"""Hands out the gradients of its first backward. Expected: wrong

Training: yes
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

KEPT = []


class Stale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, g):
        KEPT.append(g)
        return KEPT[0] if KEPT[0].shape == g.shape else g


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
        return Stale.apply(self.answer(x))
