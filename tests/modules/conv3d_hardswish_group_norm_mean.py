"""Conv3d, hard-swish, group norm with affine parameters and the mean over each channel's volume."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 32
in_channels = 16
out_channels = 32
depth, height, width = 16, 48, 48
kernel_size = 3
num_groups = 4

SMALL = {"batch_size": 2, "in_channels": 3, "out_channels": 8, "depth": 5, "height": 7, "width": 9}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, num_groups):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.norm = nn.GroupNorm(num_groups, out_channels)

    def forward(self, x):
        x = F.hardswish(self.conv(x))
        x = self.norm(x)
        return x.mean(dim=(2, 3, 4))


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, num_groups]
