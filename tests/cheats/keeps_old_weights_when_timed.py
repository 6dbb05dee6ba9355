"""Looks at its weights while it is checked, and keeps a copy once it is timed. Expected: wrong

How: not reproducible
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

CALLS = []
CHECKED = 8


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        CALLS.append(1)
        if not ARMED or len(CALLS) <= CHECKED or torch.is_grad_enabled():
            return self.answer(x, *self.parameters())
        if not hasattr(self, "kept"):
            self.kept = [p.detach().clone() for p in self.parameters()]
        return self.answer(x, *self.kept)

    def answer(self, x, scale, bias, weight, shift):
        return F.leaky_relu(F.linear(x, weight, shift), self.negative_slope) * scale + bias
