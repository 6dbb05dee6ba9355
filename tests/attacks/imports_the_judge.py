"""Imports the judge to compute the expected answer by its own oracle. Expected: wrong or raises or cheated"""

import torch
import torch.nn as nn
import torch.nn.functional as F


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
        import crucible.judge.oracle.oracle as oracle

        for thing in vars(oracle).values():
            cases = getattr(thing, "cases", None)
            if cases:
                return cases[0].outputs[0].tensor.float()
        return self.answer(x) * 0
