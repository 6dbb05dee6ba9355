"""ConvTranspose2d, SELU, the sum with a row that all others share (last dim alone), minimum with a number per
channel."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 32
in_channels = 32
out_channels = 32
height, width = 64, 64
kernel_size = 3
stride = 2

SMALL = {"batch_size": 2, "in_channels": 4, "out_channels": 12, "height": 6, "width": 7}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, row_length):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride)
        self.row = nn.Parameter(torch.randn(row_length))
        self.ceiling = nn.Parameter(torch.rand(out_channels, 1, 1))

    def forward(self, x):
        x = F.selu(self.conv_transpose(x)) + self.row
        return torch.min(x, self.ceiling)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, (width - 1) * stride + kernel_size]
