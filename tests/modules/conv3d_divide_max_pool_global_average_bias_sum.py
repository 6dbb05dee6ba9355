"""Conv3d, division by a number, max pool with tiling windows, global average pool, a bias per channel, sum over
channels."""

import torch
import torch.nn as nn

batch_size = 32
in_channels = 16
out_channels = 32
depth, height, width = 16, 48, 48
kernel_size = 3
divisor = 2.0
pool_size = 2

SMALL = {"batch_size": 2, "in_channels": 3, "out_channels": 7, "depth": 6, "height": 7, "width": 9}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, divisor, pool_size):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.divisor = divisor
        self.max_pool = nn.MaxPool3d(pool_size)
        self.global_average_pool = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1, 1))

    def forward(self, x):
        x = self.conv(x) / self.divisor
        x = self.max_pool(x)
        x = self.global_average_pool(x) + self.bias
        return torch.sum(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, divisor, pool_size]
