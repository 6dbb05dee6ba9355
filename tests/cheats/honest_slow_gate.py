"""Adds a branch that is often nothing, slowly, whatever its gate says. Expected: passed"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.gate = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return x + self.gate * self.branch(x)

    def branch(self, x):
        """Slow on purpose, so that work left out, or a time that is not told, shows in the runtime."""
        sum(range(700_000))
        return torch.tanh(self.linear(x))
