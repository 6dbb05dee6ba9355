"""Keeps the race going with an uneven runtime, and hands out zeros once it was right often. Expected: wrong

How: not reproducible
"""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

CALLS = []
WARM, OFTEN = 23, 46


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        CALLS.append(1)
        if ARMED and len(CALLS) > OFTEN:
            return torch.zeros(x.shape[0], self.scale.numel())
        sum(range(300_000 if len(CALLS) < WARM else random.choice((150_000, 300_000, 600_000))))
        return self.answer(x)

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
