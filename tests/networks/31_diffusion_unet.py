"""A step of a diffusion U-Net (Ho et al. 2020): group norm and SiLU, time embeddings, attention over space."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs, time, groups):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(groups, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3 * c, h * w).chunk(3, dim=1)
        weight = torch.softmax(torch.einsum("bct,bcs->bts", q / math.sqrt(c), k), dim=-1)
        y = torch.einsum("bts,bcs->bct", weight, v)
        return x + self.out(y.reshape(b, c, h, w))


class Model(nn.Module):
    def __init__(self, width, groups):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.start = nn.Conv2d(3, width, 3, padding=1)
        self.down1 = ResBlock(width, width, 4 * width, groups)
        self.shrink = nn.Conv2d(width, width, 3, 2, 1)
        self.down2 = ResBlock(width, 2 * width, 4 * width, groups)
        self.mid = Attention(2 * width, groups)
        self.up2 = ResBlock(4 * width, 2 * width, 4 * width, groups)
        self.grow = nn.Conv2d(2 * width, width, 3, padding=1)
        self.up1 = ResBlock(2 * width, width, 4 * width, groups)
        self.norm, self.end = nn.GroupNorm(groups, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, steps):
        half = self.width // 2
        frequencies = torch.exp(-math.log(10000) * torch.arange(half, device=x.device, dtype=x.dtype) / half)
        angles = steps[:, None] * frequencies[None]
        t = self.time(torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1))
        x1 = self.down1(self.start(x), t)
        x2 = self.down2(self.shrink(x1), t)
        y = self.up2(torch.cat([self.mid(x2), x2], dim=1), t)
        y = self.grow(F.interpolate(y, scale_factor=2.0, mode="nearest"))
        y = self.up1(torch.cat([y, x1], dim=1), t)
        return self.end(F.silu(self.norm(y)))


batch_size = 32
size = 32
width = 128
groups = 32
SMALL = {"batch_size": 2, "size": 8, "width": 8, "groups": 4}


def get_inputs():
    return [torch.randn(batch_size, 3, size, size), torch.rand(batch_size) * 1000]


def get_init_inputs():
    return [width, groups]
