"""Waits in each call for about as long as its twin works, or longer. Expected: passed

Costs: honest_short
"""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True
PAUSE_S = 0.03  # fixed: one measurement of the twin's work was half of what its calls took on one machine


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        if ARMED:
            time.sleep(PAUSE_S)
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
