"""Per-channel bias, LeakyReLU, a factor and exact GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 3
channels = 5
height, width = 13, 11


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        x = F.leaky_relu(x + self.bias, negative_slope=0.2)
        x = x * 1.5
        return F.gelu(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]


def get_init_inputs():
    return [channels]
