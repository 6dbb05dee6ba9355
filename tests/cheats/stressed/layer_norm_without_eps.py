"""A layer norm without its eps, which only small deviations show. Expected: passed

Rule: tiny values; constant values

Finding: fragile
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, rows):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features))
        self.table = nn.Embedding(rows, features, padding_idx=3)

    def forward(self, x, index):
        mixed = self.norm(self.linear(x)) * self.scale + self.table(index)
        return mixed, torch.relu(x), torch.softmax(x, -1), self.normed(x), x.argmax(-1)

    def normed(self, x):
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True)
