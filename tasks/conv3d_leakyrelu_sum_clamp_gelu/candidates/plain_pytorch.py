"""The same chain in plain PyTorch. Expected: passed."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, sum_tensor_shape):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.sum_tensor = nn.Parameter(torch.randn(sum_tensor_shape))

    def forward(self, x):
        x = F.leaky_relu(self.conv(x), 0.2) + self.sum_tensor
        return F.gelu(x.clamp(-1.0, 1.0))
