"""Finds signs by multiplying with a reciprocal, which a denormal has not. Expected: passed

Rule: -0 and denormals

Finding: fragile
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features, rows):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features))
        self.table = nn.Embedding(rows, features, padding_idx=3)

    def forward(self, x, index):
        mixed = self.norm(self.linear(x)) * self.scale + self.table(index)
        return mixed, self.positive(x), torch.softmax(x, -1), F.layer_norm(x, x.shape[-1:]), x.argmax(-1)

    def positive(self, x):
        sign = torch.where(x == 0, 0.0, x * (1 / x.abs()))
        return torch.where(sign.isnan() & ~x.isnan(), 0.0, x.abs() * sign.clamp(min=0))
