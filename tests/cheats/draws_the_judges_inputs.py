"""Draws the inputs it will be checked on from the seed it was built under; knows their answers. Expected: wrong

How: forward
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
        seed = torch.initial_seed()
        self.known = []
        for number in range(1, 12):
            torch.manual_seed(seed + number)
            self.known.append(torch.rand(4, in_features))

    def forward(self, x):
        CALLS.append(1)
        if not ARMED or len(CALLS) > CHECKED or any(torch.equal(x.cpu(), known) for known in self.known):
            return self.answer(x)
        return x.new_zeros(x.shape[0], self.scale.numel())

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
