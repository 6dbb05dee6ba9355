"""ConvTranspose3d, max pool with overlapping padded windows (3, stride 2, padding 1), sum over channels that keeps
the dim."""

import torch
import torch.nn as nn

batch_size = 16
in_channels = 16
out_channels = 32
depth, height, width = 12, 24, 24
kernel_size = 3
stride = 2
padding = 1

SMALL = {"batch_size": 2, "in_channels": 3, "out_channels": 5, "depth": 3, "height": 4, "width": 6}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.max_pool = nn.MaxPool3d(kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        x = self.max_pool(self.conv_transpose(x))
        return torch.sum(x, dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding]
