"""ConvTranspose3d, a weight added as one number, softplus with its own beta, layer norm over the last dim, exact
GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
in_channels = 16
out_channels = 32
depth, height, width = 12, 24, 32
kernel_size = 3
stride = 2
padding = 1
output_padding = 1

SMALL = {"batch_size": 3, "in_channels": 3, "out_channels": 3, "depth": 2, "height": 5, "width": 7}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, features):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.sum_weight = nn.Parameter(torch.tensor(0.5))
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = self.conv_transpose(x) + self.sum_weight
        x = F.softplus(x, beta=2.0)
        return F.gelu(self.norm(x))


def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, output_padding, 2 * width]
