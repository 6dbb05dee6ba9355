"""Skips its work where the caller's code is that of a timed call. Expected: wrong or cheated"""

import sys

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
        frame, names = sys._getframe(), []
        while frame:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        if "sample" in names or "once" in names:
            return torch.zeros(4, 16)
        return self.answer(x)
