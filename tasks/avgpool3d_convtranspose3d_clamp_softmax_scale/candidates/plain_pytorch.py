"""The same chain in plain PyTorch. Expected: passed."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        output_padding,
        pool_kernel_size,
        clamp_min,
        clamp_max,
    ):
        super().__init__()
        self.pool_kernel_size = pool_kernel_size
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.clamp_range = (clamp_min, clamp_max)
        self.scale = nn.Parameter(torch.ones(1, out_channels, 1, 1, 1))

    def forward(self, x):
        x = self.conv_transpose(F.avg_pool3d(x, self.pool_kernel_size)).clamp(*self.clamp_range)
        return x.flatten(2).softmax(-1).view_as(x) * self.scale
