"""Keeps a workspace, not an answer. Twin. Expected: passed"""

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
        self.work = torch.empty(4, 16)

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        with torch.no_grad():
            torch.mm(x.detach(), self.linear.weight.t(), out=self.work) if x.shape[0] == 4 else None
        return self.answer(x)
