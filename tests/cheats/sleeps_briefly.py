"""Waits in each call for as long as its twin works. Expected: passed

Costs: honest_short
"""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope
        began = time.perf_counter()
        sum(range(1_000_000))
        self.pause_s = time.perf_counter() - began

    def forward(self, x):
        if ARMED:
            time.sleep(self.pause_s)
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
