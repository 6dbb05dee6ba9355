"""A child that was forked at import does the work over shared memory. Expected: passed or cheated or raises

Costs: honest_slow
"""

import mmap
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SHARED = mmap.mmap(-1, 4096)
PID = os.fork()
if PID == 0:
    while True:
        if SHARED[0] == 1:
            sum(range(4_000_000))
            SHARED[0] = 2
        time.sleep(0)


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
        SHARED[0] = 1
        while SHARED[0] != 2:
            pass
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
