"""A Conformer block (Gulati et al. 2020): half feed-forwards, attention, a gated depthwise convolution in one dim."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.down(F.silu(self.up(self.norm(x))))


class ConvModule(nn.Module):
    def __init__(self, dim, kernel):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.pointwise1 = nn.Conv1d(dim, 2 * dim, 1)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.bn = nn.BatchNorm1d(dim)
        self.pointwise2 = nn.Conv1d(dim, dim, 1)

    def forward(self, x):
        y = F.glu(self.pointwise1(self.norm(x).transpose(1, 2)), dim=1)
        y = self.pointwise2(F.silu(self.bn(self.depthwise(y))))
        return y.transpose(1, 2)


class Model(nn.Module):
    def __init__(self, dim, heads, kernel):
        super().__init__()
        self.ff1, self.ff2 = FeedForward(dim), FeedForward(dim)
        self.norm_att, self.norm_out = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.conv = ConvModule(dim, kernel)

    def forward(self, x):
        x = x + 0.5 * self.ff1(x)
        y = self.norm_att(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.conv(x)
        return self.norm_out(x + 0.5 * self.ff2(x))


batch_size = 16
length = 512
dim = 256
heads = 4
kernel = 31
SMALL = {"batch_size": 2, "length": 12, "dim": 16, "heads": 2, "kernel": 5}


def get_inputs():
    return [torch.randn(batch_size, length, dim)]


def get_init_inputs():
    return [dim, heads, kernel]
