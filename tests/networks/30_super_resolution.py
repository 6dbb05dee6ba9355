"""EDSR (Lim et al. 2017): residual blocks without norms, pixel shuffle up."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlock(nn.Module):
    def __init__(self, channels, scale):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.scale = scale

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x))) * self.scale


class Model(nn.Module):
    def __init__(self, channels, blocks, up):
        super().__init__()
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.Sequential(*(ResBlock(channels, 0.1) for _ in range(blocks)))
        self.fuse = nn.Conv2d(channels, channels, 3, padding=1)
        self.up = nn.Conv2d(channels, channels * up**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(up)
        self.tail = nn.Conv2d(channels, 3, 3, padding=1)
        self.register_buffer("mean", torch.tensor([0.45, 0.44, 0.40]).view(1, 3, 1, 1))

    def forward(self, x):
        x = self.head(x - self.mean)
        x = x + self.fuse(self.body(x))
        return self.tail(self.shuffle(self.up(x))) + self.mean


batch_size = 8
size = 128
channels = 64
blocks = 3
SMALL = {"batch_size": 2, "size": 9, "channels": 8, "blocks": 2}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [channels, blocks, 2]
