"""Conv2d, subtraction of a number, hard-swish, max pool with tiling windows and mish."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 64
in_channels = 32
out_channels = 64
height, width = 96, 96
kernel_size = 3
subtract_value = 0.5
pool_size = 2

SMALL = {"batch_size": 3, "in_channels": 4, "out_channels": 8, "height": 13, "width": 13}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, subtract_value, pool_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.subtract_value = subtract_value
        self.pool = nn.MaxPool2d(pool_size)

    def forward(self, x):
        x = self.conv(x) - self.subtract_value
        x = self.pool(F.hardswish(x))
        return F.mish(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, subtract_value, pool_size]
