"""Conv2d, batch norm with frozen statistics (as in eval mode), ReLU6, max pool with overlapping windows."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 64
in_channels = 32
out_channels = 64
height, width = 96, 96
kernel_size = 3

SMALL = {"batch_size": 3, "in_channels": 3, "out_channels": 6, "height": 11, "width": 13}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, bias=False)
        self.weight = nn.Parameter(torch.rand(out_channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(out_channels))
        self.register_buffer("running_mean", torch.randn(out_channels) * 0.1)
        self.register_buffer("running_var", torch.rand(out_channels) + 0.5)
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2)

    def forward(self, x):
        x = self.conv(x)
        x = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training=False)
        return self.pool(F.relu6(x))


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
