"""Burns all processors from daemons while baselines run. Expected: passed or cheated or raises"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        while True:
            pass


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        return self.answer(x)
