"""A product with a parameter, the error function, logarithm and inverse root of values in [1, 3], negation,
logical conditions."""

import torch
import torch.nn as nn

batch_size = 8192
in_features = 1024
out_features = 4096

SMALL = {"batch_size": 5, "in_features": 11, "out_features": 70}


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) / in_features**0.5)

    def forward(self, x):
        x = torch.erf(torch.matmul(x, self.weight)) + 2.0
        y = -torch.log(x) * torch.rsqrt(x)
        return torch.where((x >= 1.2) & (x < 2.8), y, 1.0 - x)


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
