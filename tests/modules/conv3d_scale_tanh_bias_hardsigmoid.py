"""Conv3d, a factor per channel, tanh, a bias per channel and hard-sigmoid."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 32
in_channels = 16
out_channels = 32
depth, height, width = 16, 48, 48
kernel_size = 3

SMALL = {"batch_size": 2, "in_channels": 3, "out_channels": 7, "depth": 5, "height": 6, "width": 9}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1, 1))
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1, 1))

    def forward(self, x):
        x = torch.tanh(self.conv(x) * self.scale)
        return F.hardsigmoid(x + self.bias)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
