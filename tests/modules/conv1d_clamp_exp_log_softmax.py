"""Conv1d, clamp to [-2, 2], exponential, log-softmax over channels (dim 1 of 3)."""

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
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        x = torch.exp(torch.clamp(self.conv(x), -2.0, 2.0))
        return F.log_softmax(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
