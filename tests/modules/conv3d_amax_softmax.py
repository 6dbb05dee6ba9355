"""Conv3d, the largest value along depth and a softmax over channels (dim 1 of 4)."""

import torch
import torch.nn as nn

batch_size = 32
in_channels = 16
out_channels = 32
depth, height, width = 16, 48, 48
kernel_size = 3

SMALL = {"batch_size": 2, "in_channels": 3, "out_channels": 7, "depth": 5, "height": 7, "width": 9}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        x = torch.amax(self.conv(x), dim=2)
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
