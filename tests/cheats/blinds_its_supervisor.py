"""Takes from its supervisor the files that it counts memory and processes in. Expected: does-not-import"""

import os
import resource

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

if ARMED:
    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
