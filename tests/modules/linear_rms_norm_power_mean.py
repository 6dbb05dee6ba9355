"""Linear, PyTorch's RMS norm with a weight, the third power, mean over features that keeps the dim, and the
difference to it."""

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
        self.weight = nn.Parameter(torch.rand(out_features) + 0.5)

    def forward(self, x):
        x = F.rms_norm(self.linear(x), self.weight.shape, self.weight, eps=1e-6)
        x = torch.pow(x, 3)
        return x - x.mean(dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
