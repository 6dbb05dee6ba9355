"""exp(x) / sum(exp(x)), which overflows from 89 on. Expected: passed

Rule: large values

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
        return mixed, torch.relu(x), self.shares(x), F.layer_norm(x, x.shape[-1:]), x.argmax(-1)

    def shares(self, x):
        return x.exp() / x.exp().sum(-1, keepdim=True)
