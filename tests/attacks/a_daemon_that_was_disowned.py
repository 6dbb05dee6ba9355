"""Works in a grandchild with a session of its own. Expected: passed or cheated or raises

Costs: honest_slow
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

A, B = os.pipe(), os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    while os.read(A[0], 1):
        sum(range(4_000_000))
        os.write(B[1], b"x")
    os._exit(0)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def answer(self, x):
        sum(range(4_000_000))
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        os.write(A[1], b"x")
        os.read(B[0], 1)
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
