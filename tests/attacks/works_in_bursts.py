"""Skips its work where calls follow each other within a millisecond. Expected: wrong or cheated"""

import time

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
        self.last = 0.0

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        now = time.monotonic()
        soon, self.last = now - self.last < 0.01, now
        return torch.zeros(4, 16) if soon else self.answer(x)
