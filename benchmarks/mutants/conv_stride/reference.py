"""A 2-D convolution with stride and padding, clamped."""

import torch
import torch.nn as nn

batch_size = 2
in_channels = 4
out_channels = 5
height, width = 13, 17


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        return torch.clamp(self.conv(x), min=-0.6, max=0.8)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
