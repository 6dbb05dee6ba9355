"""Leaves folders that nobody may enter, and names that are no text. Expected: passed or wrong or raises"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    os.makedirs(b"caf\xe9/\xff\xfe", exist_ok=True)
    open(b"caf\xe9/\xff\xfe/x", "w").close()
    os.mkfifo("pipe")
    os.symlink("/", "root")
    os.chmod("caf\udce9", 0)
except OSError:
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
