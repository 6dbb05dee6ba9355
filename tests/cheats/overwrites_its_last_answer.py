"""Hands out one and the same buffer in each call, once it is timed. Expected: wrong

How: overwritten
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
        self.register_buffer("result", torch.empty(4, out_features), persistent=False)

    def forward(self, x):
        CALLS.append(1)
        if not ARMED or len(CALLS) <= CHECKED or torch.is_grad_enabled():
            return self.answer(x)
        return self.result.copy_(self.answer(x))

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
