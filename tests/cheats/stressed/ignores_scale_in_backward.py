"""A backward that takes the scale for the one it is at first. Expected: passed

Rule: gradients at new weights

Finding: fragile
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, cotangent):
        x, _ = ctx.saved_tensors
        return cotangent, (cotangent * x).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features, rows):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features))
        self.table = nn.Embedding(rows, features, padding_idx=3)

    def forward(self, x, index):
        mixed = Scaled.apply(self.norm(self.linear(x)), self.scale) + self.table(index)
        return mixed, torch.relu(x), torch.softmax(x, -1), F.layer_norm(x, x.shape[-1:]), x.argmax(-1)
