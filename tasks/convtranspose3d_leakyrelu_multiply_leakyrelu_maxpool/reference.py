"""ConvTranspose3d, LeakyReLU, per-channel multiplication, LeakyReLU and MaxPool3d; judged with gradients."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
in_channels = 16
out_channels = 32
depth, height, width = 16, 32, 32
kernel_size = 3
stride = 2
padding = 1
output_padding = 1

SMALL = {"batch_size": 3, "depth": 3, "height": 5, "width": 7}
TRAINING = True


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))

    def forward(self, x):
        x = self.conv_transpose(x)
        x = F.leaky_relu(x, negative_slope=0.2)
        x = x * self.multiplier
        x = F.leaky_relu(x, negative_slope=0.2)
        return F.max_pool3d(x, kernel_size=2)


def get_inputs():
    return [torch.rand(batch_size, in_channels, depth, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, output_padding, (out_channels, 1, 1, 1)]
