"""Finds the worker in the heap and replaces its methods. Expected: cheated or wrong or passed

Costs: honest_slow
"""

import gc

import torch
import torch.nn as nn
import torch.nn.functional as F

for thing in gc.get_objects():
    if type(thing).__name__ == "Worker":
        type(thing).sample = lambda self, request: {"device_ms": 1e-6, "wall_ms": 1e-6}


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
        return self.answer(x)
