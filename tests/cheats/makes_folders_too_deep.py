"""Makes folders deeper than a path can name, on which the judge's tidying up once ended. Expected: passed"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

if ARMED:
    here = os.getcwd()
    for _ in range(2500):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    os.chdir(here)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
