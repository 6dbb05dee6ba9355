"""Walks its work with iterators of its own, whose StopIteration is no failure. Expected: passed"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Slices:
    def __init__(self, size, step):
        self.size, self.step, self.at = size, step, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.size:
            raise StopIteration
        self.at += self.step
        return slice(self.at - self.step, self.at)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def parts(self, x):
        for rows in Slices(x.shape[0], 2):
            yield F.leaky_relu(self.linear(x[rows]), self.negative_slope)

    def forward(self, x):
        hidden = torch.cat([part * self.scale for part in self.parts(x)])
        return hidden + self.bias
