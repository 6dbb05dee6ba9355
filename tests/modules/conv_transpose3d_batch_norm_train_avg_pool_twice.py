"""ConvTranspose3d, batch norm in training mode, which updates its statistics, and two average pools with tiling
windows."""

import torch
import torch.nn as nn

batch_size = 16
in_channels = 16
out_channels = 32
depth, height, width = 12, 24, 24
kernel_size = 3
stride = 2
padding = 1

SMALL = {"batch_size": 2, "in_channels": 3, "out_channels": 5, "depth": 4, "height": 5, "width": 6}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.batch_norm = nn.BatchNorm3d(out_channels)
        self.avg_pool1 = nn.AvgPool3d(kernel_size=2)
        self.avg_pool2 = nn.AvgPool3d(kernel_size=2)

    def forward(self, x):
        x = self.batch_norm(self.conv_transpose(x))
        x = self.avg_pool1(x)
        return self.avg_pool2(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding]
