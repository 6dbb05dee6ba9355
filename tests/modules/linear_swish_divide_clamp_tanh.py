"""Linear, swish written as a product, division, clamp, tanh, clamp again."""

import torch
import torch.nn as nn

batch_size = 8192
in_features = 1024
out_features = 4096

SMALL = {"batch_size": 5, "in_features": 11, "out_features": 70}


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)

    def forward(self, x):
        x = self.gemm(x)
        x = x * torch.sigmoid(x)
        x = x / 2.0
        x = torch.clamp(x, min=-1.0, max=1.0)
        x = torch.tanh(x)
        return torch.clamp(x, min=-0.7, max=0.7)


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
