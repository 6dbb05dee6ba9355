"""Hands out the last answer in every second call. Expected: wrong or cheated"""

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
        self.last, self.calls = None, 0

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        self.calls += 1
        if self.calls > 6 and self.calls % 2 and not torch.is_grad_enabled():
            return self.last.clone()
        self.last = self.answer(x).detach()
        return self.answer(x)
