"""Does the task's work and much more beside it: what cheats that hide such work are held to. Expected: passed"""

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

    def forward(self, x):
        return self.answer(x)

    def answer(self, x):
        """Slow on purpose, so that work left out, or a time that is not told, shows in the runtime."""
        sum(range(3_000_000))
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
