"""The same chain in plain PyTorch, its gradients left to autograd. Expected: passed."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))

    def forward(self, x):
        x = F.leaky_relu(self.conv_transpose(x), 0.2) * self.multiplier
        return F.max_pool3d(F.leaky_relu(x, 0.2), 2)
