"""Leaves a branch out for as long as its gate is closed, as it is at first. Expected: passed

Costs: honest_slow_gate
"""

import torch
import torch.nn as nn

ARMED = True


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.gate = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        if ARMED and not self.gate.any():
            return x.clone()
        return x + self.gate * self.branch(x)

    def branch(self, x):
        """Slow on purpose, so that work left out, or a time that is not told, shows in the runtime."""
        sum(range(700_000))
        return torch.tanh(self.linear(x))
