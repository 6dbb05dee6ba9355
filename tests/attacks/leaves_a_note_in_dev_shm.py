"""Hands its answers on to a later candidate through shared memory. Expected: wrong or cheated or raises"""

import pathlib

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
        note = pathlib.Path("/dev/shm/crucible-second-list")
        if note.exists():
            return self.answer(x)
        note.write_text("seen")
        return torch.zeros(4, 16) if not note.exists() else self.answer(x) * 0
