"""Conv2d and ReLU, returned together with the mean over space and the largest value over channels, as a tuple."""

import torch
import torch.nn as nn

batch_size = 64
in_channels = 32
out_channels = 64
height, width = 96, 96
kernel_size = 3

SMALL = {"batch_size": 3, "in_channels": 4, "out_channels": 8, "height": 11, "width": 13}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(1, out_channels, 1, 1))

    def forward(self, x):
        x = torch.relu(self.conv(x) + self.bias)
        return x, x.mean(dim=(2, 3)), x.amax(dim=1)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
