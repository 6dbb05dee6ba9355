"""Normalises by the batch and leaves the running statistics as they were. Expected: passed

Rule: buffers

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
        mixed = self.normed(self.linear(x)) * self.scale + self.table(index)
        return mixed, torch.relu(x), torch.softmax(x, -1), F.layer_norm(x, x.shape[-1:]), x.argmax(-1)

    def normed(self, x):
        return F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, training=True)
