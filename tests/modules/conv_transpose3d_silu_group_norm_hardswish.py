"""ConvTranspose3d, SiLU, group norm and hard-swish."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
in_channels = 16
out_channels = 32
depth, height, width = 12, 24, 24
kernel_size = 3
stride = 2
padding = 1
num_groups = 4

SMALL = {"batch_size": 2, "in_channels": 3, "out_channels": 4, "depth": 3, "height": 5, "width": 6}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, num_groups):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.group_norm = nn.GroupNorm(num_groups=num_groups, num_channels=out_channels)

    def forward(self, x):
        x = F.silu(self.conv_transpose(x))
        x = self.group_norm(x)
        return F.hardswish(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, num_groups]
