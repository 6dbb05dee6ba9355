"""Conv2d, leaky ReLU, a factor per channel and logsumexp over channels (dim 1)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

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
        self.scale = nn.Parameter(torch.rand(out_channels, 1, 1) + 0.5)

    def forward(self, x):
        x = F.leaky_relu(self.conv(x), negative_slope=0.1) * self.scale
        return torch.logsumexp(x, dim=1, keepdim=True)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
