"""Conv2d in float16 parameters and inputs, a bias per channel, exact GELU, max pool."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 64
in_channels = 32
out_channels = 64
height, width = 96, 96
kernel_size = 3

SMALL = {"batch_size": 3, "in_channels": 8, "out_channels": 8, "height": 13, "width": 13}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.pool = nn.MaxPool2d(2)
        self.half()

    def forward(self, x):
        x = F.gelu(self.conv(x) + self.bias)
        return self.pool(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width).half()]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
