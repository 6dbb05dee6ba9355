"""ConvTranspose1d, cosine, layer norm over the two trailing dims with parameters of that shape, instance norm with
parameters."""

import torch
import torch.nn as nn

batch_size = 32
in_channels = 32
out_channels = 64
length = 2048
kernel_size = 4
stride = 4

SMALL = {"batch_size": 2, "in_channels": 3, "out_channels": 5, "length": 13}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, out_length):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose1d(in_channels, out_channels, kernel_size, stride=stride)
        self.layer_norm = nn.LayerNorm([out_channels, out_length])
        self.instance_norm = nn.InstanceNorm1d(out_channels, affine=True)

    def forward(self, x):
        x = torch.cos(self.conv_transpose(x))
        return self.instance_norm(self.layer_norm(x))


def get_inputs():
    return [torch.randn(batch_size, in_channels, length)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, stride * length]
