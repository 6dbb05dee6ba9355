"""Sleeps where others work: time that no processor clock counts. Expected: passed

Finding: it waits while it is timed
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

    def forward(self, x):
        if ARMED:
            time.sleep(0.1)
        return self.answer(x)

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
