"""Linear, sigmoid, a factor per feature and logsumexp over the last dim."""

import torch
import torch.nn as nn

batch_size = 8192
in_features = 1024
out_features = 4096

SMALL = {"batch_size": 5, "in_features": 11, "out_features": 70}


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        x = torch.sigmoid(self.linear(x)) * self.scale
        return torch.logsumexp(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
