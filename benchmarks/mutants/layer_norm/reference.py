"""Layer norm over the last dimension, then a ReLU."""

import torch
import torch.nn as nn

batch_size = 5
rows = 7
features = 150


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(batch_size, rows, features) + 0.5]


def get_init_inputs():
    return [features]
