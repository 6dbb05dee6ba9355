"""Reads its input's memory in order, whatever its strides say. Expected: passed

Rule: transposed input; strided input; misaligned input; expanded input

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
        flat = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
        right = torch.relu(x)
        return right + (flat[: x.numel()].reshape(x.shape).clamp(min=0) - right).detach()
