"""Conv3d, maximum with a tensor per channel, clamp from above alone, average pool with overlapping padded windows
that leaves padding out of the count."""

import torch
import torch.nn as nn

batch_size = 32
in_channels = 16
out_channels = 32
depth, height, width = 16, 48, 48
kernel_size = 3

SMALL = {"batch_size": 2, "in_channels": 3, "out_channels": 5, "depth": 5, "height": 7, "width": 9}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.floor = nn.Parameter(torch.randn(1, out_channels, 1, 1, 1))
        self.avg_pool = nn.AvgPool3d(kernel_size=3, stride=2, padding=1, count_include_pad=False)

    def forward(self, x):
        x = torch.maximum(self.conv(x), self.floor)
        x = x.clamp(max=1.0)
        return self.avg_pool(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
