"""Linear, batch norm over rows in training mode, exact GELU and ReLU."""

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
        self.gemm = nn.Linear(in_features, out_features)
        self.batch_norm = nn.BatchNorm1d(out_features)

    def forward(self, x):
        x = self.batch_norm(self.gemm(x))
        return torch.relu(F.gelu(x))


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
