"""Linear, layer norm over features with parameters, the sum with a second input, GELU by tanh."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8192
in_features = 1024
out_features = 4096

SMALL = {"batch_size": 5, "in_features": 11, "out_features": 70}


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.LayerNorm(out_features)

    def forward(self, x, residual):
        x = self.norm(self.linear(x)) + residual
        return F.gelu(x, approximate="tanh")


def get_inputs():
    return [torch.randn(batch_size, in_features), torch.randn(batch_size, out_features)]


def get_init_inputs():
    return [in_features, out_features]
