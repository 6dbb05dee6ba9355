"""A backward that reads its cotangent's memory in order. Expected: passed

Rule: strided cotangent; expanded cotangent

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
        x, scale = ctx.saved_tensors
        memory = torch.empty(0, dtype=x.dtype, device=x.device).set_(cotangent.untyped_storage())
        cotangent = memory[: x.numel()].reshape(x.shape)
        return cotangent * scale, (cotangent * x).sum(0)


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
