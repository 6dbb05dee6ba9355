"""Lays its weights out anew whenever they have changed, and reuses buffers by shape. Expected: passed"""

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
        self.packed, self.version = None, None
        self.workspaces = {}

    def forward(self, x):
        if torch.is_grad_enabled():
            return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
        versions = tuple(p._version for p in self.parameters())
        if versions != self.version:
            self.packed, self.version = self.linear.weight.t().contiguous(), versions
        workspace = self.workspaces.setdefault(tuple(x.shape), x.new_empty(x.shape[0], self.scale.numel()))
        torch.addmm(self.linear.bias, x, self.packed, out=workspace)
        return torch.addcmul(self.bias, F.leaky_relu(workspace, self.negative_slope), self.scale)
