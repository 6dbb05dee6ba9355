"""Conv2d, instance norm without parameters, division by a number."""

import torch
import torch.nn as nn

batch_size = 64
in_channels = 32
out_channels = 64
height, width = 96, 96
kernel_size = 3
divide_by = 2.0

SMALL = {"batch_size": 3, "in_channels": 4, "out_channels": 8, "height": 11, "width": 13}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, divide_by):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.instance_norm = nn.InstanceNorm2d(out_channels)
        self.divide_by = divide_by

    def forward(self, x):
        x = self.instance_norm(self.conv(x))
        return x / self.divide_by


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, divide_by]
