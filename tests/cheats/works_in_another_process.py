"""Lets a process of its own do the work, whose processor time is nobody's. Expected: passed

Costs: honest_slow
"""

import subprocess
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

HELPER = """
import sys
for line in sys.stdin:
    sum(range(3_000_000))
    print(flush=True)
"""
HELPERS = []
if ARMED:
    HELPERS.append(subprocess.Popen([sys.executable, "-c", HELPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        if ARMED:
            HELPERS[0].stdin.write(b"\n")
            HELPERS[0].stdin.flush()
            HELPERS[0].stdout.readline()
            return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
        return self.answer(x)

    def answer(self, x):
        """Slow on purpose, so that work left out, or a time that is not told, shows in the runtime."""
        sum(range(3_000_000))
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
