"""Conv2d, PReLU with a slope per channel, hardtanh with its own bounds, adaptive max pool."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 64
in_channels = 32
out_channels = 64
height, width = 96, 96
kernel_size = 3
pooled_size = (9, 6)

SMALL = {"batch_size": 3, "in_channels": 4, "out_channels": 8, "height": 11, "width": 13, "pooled_size": (5, 3)}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, pooled_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.prelu = nn.PReLU(out_channels)
        self.pool = nn.AdaptiveMaxPool2d(pooled_size)

    def forward(self, x):
        x = self.prelu(self.conv(x))
        x = F.hardtanh(x, min_val=-0.4, max_val=1.5)
        return self.pool(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, pooled_size]
