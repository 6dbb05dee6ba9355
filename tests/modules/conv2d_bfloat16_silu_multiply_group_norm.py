"""Conv2d in bfloat16 parameters and inputs, SiLU, a factor per channel and sample from a second input, group norm."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 64
in_channels = 32
out_channels = 64
height, width = 96, 96
kernel_size = 3
num_groups = 8

SMALL = {"batch_size": 3, "in_channels": 8, "out_channels": 16, "height": 11, "width": 13, "num_groups": 2}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, num_groups):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.norm = nn.GroupNorm(num_groups, out_channels)
        self.to(torch.bfloat16)

    def forward(self, x, scale):
        x = F.silu(self.conv(x)) * scale
        return self.norm(x)


def get_inputs():
    return [
        torch.randn(batch_size, in_channels, height, width).to(torch.bfloat16),
        torch.rand(batch_size, out_channels, 1, 1).to(torch.bfloat16),
    ]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, num_groups]
