"""Multiplies by a copy of the weights that it was made with. Expected: wrong or cheated"""

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
        self.kept = self.linear.weight.detach().clone().t().contiguous()

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        y = x @ self.kept + self.linear.bias
        return F.leaky_relu(y, self.negative_slope) * self.scale + self.bias
