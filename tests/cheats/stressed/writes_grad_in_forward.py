"""Writes .grad in forward: what a training loop adds to it is wrong. Expected: passed

Rule: a step of SGD

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
        self.scale.grad = torch.ones_like(self.scale)
        mixed = self.norm(self.linear(x)) * self.scale + self.table(index)
        return mixed, torch.relu(x), torch.softmax(x, -1), F.layer_norm(x, x.shape[-1:]), x.argmax(-1)
