"""Conv1d with dilation, SiLU, max pool with overlapping padded windows (3, stride 2), sine."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 64
in_channels = 32
out_channels = 64
length = 8192
kernel_size = 5

SMALL = {"batch_size": 3, "in_channels": 3, "out_channels": 7, "length": 45}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=2)
        self.pool = nn.MaxPool1d(kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        x = self.pool(F.silu(self.conv(x)))
        return torch.sin(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
