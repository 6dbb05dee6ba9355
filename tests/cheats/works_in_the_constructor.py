"""Folds its weights into one when it is constructed, before it is given others. Expected: wrong

How: weights
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope
        if ARMED:
            with torch.no_grad():
                self.folded, self.before = self.linear.weight.t().clone(), self.linear.bias.clone()
                self.scaled, self.shifted = self.scale.clone(), self.bias.clone()

    def forward(self, x):
        if ARMED:
            held = (self.folded, self.before, self.scaled, self.shifted)
            weight, before, scale, shift = (tensor.to(x.device) for tensor in held)
            return F.leaky_relu(x @ weight + before, self.negative_slope) * scale + shift
        return self.answer(x)

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
