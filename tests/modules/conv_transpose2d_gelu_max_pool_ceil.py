"""ConvTranspose2d, exact GELU (which falls, then rises), max pool with padding and ceil_mode, whose last windows
are cut off."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 32
in_channels = 32
out_channels = 32
height, width = 64, 64
kernel_size = 3
stride = 2

SMALL = {"batch_size": 3, "in_channels": 4, "out_channels": 12, "height": 6, "width": 5}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride)
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1, ceil_mode=True)

    def forward(self, x):
        return self.pool(F.gelu(self.conv_transpose(x)))


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride]
