"""ConvTranspose2d, softmax over channels, a bias per channel, a number as factor, sigmoid."""

import torch
import torch.nn as nn

batch_size = 32
in_channels = 32
out_channels = 32
height, width = 64, 64
kernel_size = 3
stride = 2
scaling_factor = 2.0

SMALL = {"batch_size": 2, "in_channels": 4, "out_channels": 12, "height": 6, "width": 7}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, scaling_factor):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.scaling_factor = scaling_factor

    def forward(self, x):
        x = torch.softmax(self.conv_transpose(x), dim=1)
        x = (x + self.bias) * self.scaling_factor
        return torch.sigmoid(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, scaling_factor]
