"""Computes while it is checked and in its first calls, and hands out zeros from then on. Expected: wrong

How: not reproducible
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

CALLS = []
CHECKED = 8


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        CALLS.append(1)
        if ARMED and len(CALLS) > CHECKED:
            return x.new_zeros(x.shape[0], self.scale.numel())
        return self.answer(x)

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
