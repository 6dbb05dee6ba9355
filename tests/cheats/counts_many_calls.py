"""Keeps the race going with an uneven runtime, and hands out zeros once it was right often. Expected: wrong

How: not reproducible

Calls are short, so that a race has more than OFTEN of them on a busy machine too: the fewest rounds have 60 calls.
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
            return x.new_zeros(x.shape[0], self.scale.numel())
        sum(range(30_000 if len(CALLS) < WARM else random.choice((15_000, 30_000, 60_000))))
        return self.answer(x)

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
