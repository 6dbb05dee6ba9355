"""Two branches of one Conv2d: a gate of SiLU and sigmoid, and a second Conv2d with ReLU; concatenated along
channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 64
in_channels = 32
out_channels = 64
height, width = 96, 96
kernel_size = 3

SMALL = {"batch_size": 3, "in_channels": 4, "out_channels": 8, "height": 9, "width": 11}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.gate = nn.Conv2d(out_channels, out_channels, kernel_size=1)
        self.shortcut = nn.Conv2d(out_channels, out_channels // 2, kernel_size=1)

    def forward(self, x):
        x = self.conv(x)
        gated = F.silu(x) * torch.sigmoid(self.gate(x))
        return torch.cat([gated, torch.relu(self.shortcut(x))], dim=1)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
