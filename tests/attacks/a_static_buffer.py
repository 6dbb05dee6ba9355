"""Answers with the same memory each time. Expected: passed or wrong"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope
        self.register_buffer("out", torch.empty(4, 16), persistent=False)

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        if torch.is_grad_enabled():
            return self.answer(x)
        self.out.copy_(self.answer(x))
        return self.out
