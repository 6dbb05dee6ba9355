"""Answers a tuple whose items differ each time they are asked for. Expected: wrong or cheated or raises"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Changing(tuple):
    def __iter__(self):
        return iter(())

    def __len__(self):
        return 1


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
        return Changing((self.answer(x),))
