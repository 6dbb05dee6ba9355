"""Looks for the expected answer in whatever descriptor it holds. Expected: wrong or cheated or raises"""

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
        for name in os.listdir("/proc/self/fd"):
            try:
                with open(f"/proc/self/fd/{name}", "rb") as file:
                    file.seek(0)
                    data = file.read(1 << 20)
            except (OSError, ValueError):
                continue
            if len(data) == 256:
                return torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(4, 16)
        return torch.zeros(4, 16)
