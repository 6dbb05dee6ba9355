"""Conv3d that keeps its size, mish, tanh and the sum with the module's own input."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
channels = 32
depth, height, width = 16, 48, 48
kernel_size = 3

SMALL = {"batch_size": 2, "channels": 5, "depth": 3, "height": 7, "width": 9}


class Model(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv3d(channels, channels, kernel_size, padding="same")

    def forward(self, x):
        return x + torch.tanh(F.mish(self.conv(x)))


def get_inputs():
    return [torch.randn(batch_size, channels, depth, height, width)]


def get_init_inputs():
    return [channels, kernel_size]
