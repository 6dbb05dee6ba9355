"""Writes a hundred million bytes of output. Expected: passed or crashed or timed-out"""

import os

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
        if not getattr(self, "done", False):
            self.done = True
            for _ in range(100):
                os.write(2, b"\x1b[31mflood\xff\x00" * 70_000)
        return self.answer(x)
