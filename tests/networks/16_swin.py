"""Swin transformer (Liu et al. 2021): attention in windows, shifted, with a relative position bias; patches merged."""

import torch
import torch.nn as nn


def window_partition(x, size):
    b, h, w, c = x.shape
    x = x.view(b, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, c)


def window_reverse(windows, size, h, w):
    b = windows.shape[0] // (h * w // size // size)
    x = windows.view(b, h // size, w // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, -1)


class WindowAttention(nn.Module):
    def __init__(self, dim, window, heads):
        super().__init__()
        self.heads, self.scale, self.window = heads, (dim // heads) ** -0.5, window
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        place = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        relative = (place[:, :, None] - place[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", relative[..., 0] * (2 * window - 1) + relative[..., 1])
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = attn + self.table[self.index.view(-1)].view(n, n, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            attn = attn.view(b // windows, windows, self.heads, n, n) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.heads, n, n)
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, resolution, heads, window, shift):
        super().__init__()
        self.window, self.shift, self.resolution = window, shift, resolution
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, window, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        mask = None
        if shift:
            image, count = torch.zeros(1, resolution, resolution, 1), 0
            cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
            for rows in cuts:
                for columns in cuts:
                    image[:, rows, columns, :] = count
                    count += 1
            parts = window_partition(image, window).squeeze(-1)
            mask = parts.unsqueeze(1) - parts.unsqueeze(2)
            mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
        self.register_buffer("mask", mask)

    def forward(self, x):
        b, length, c = x.shape
        h = w = self.resolution
        y = self.norm1(x).view(b, h, w, c)
        if self.shift:
            y = torch.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = self.attn(window_partition(y, self.window), self.mask)
        y = window_reverse(y, self.window, h, w)
        if self.shift:
            y = torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        x = x + y.view(b, length, c)
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim, resolution):
        super().__init__()
        self.resolution = resolution
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        b, _, c = x.shape
        x = x.view(b, self.resolution, self.resolution, c)
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.reduction(self.norm(x.view(b, -1, 4 * c)))


class Model(nn.Module):
    def __init__(self, size, dim, heads, window, classes):
        super().__init__()
        side = size // 4
        self.patch_embed = nn.Conv2d(3, dim, 4, 4)
        self.patch_norm = nn.LayerNorm(dim)
        self.stage1 = nn.Sequential(Block(dim, side, heads, window, 0), Block(dim, side, heads, window, window // 2))
        self.merge = PatchMerging(dim, side)
        self.stage2 = nn.Sequential(
            Block(2 * dim, side // 2, 2 * heads, window, 0), Block(2 * dim, side // 2, 2 * heads, window, window // 2)
        )
        self.norm = nn.LayerNorm(2 * dim)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, x):
        x = self.patch_norm(self.patch_embed(x).flatten(2).transpose(1, 2))
        x = self.norm(self.stage2(self.merge(self.stage1(x))))
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool1d(x.transpose(1, 2), 1), 1))


batch_size = 16
size = 224
dim = 96
heads = 3
window = 7
classes = 1000
SMALL = {"batch_size": 1, "size": 64, "dim": 16, "heads": 2, "window": 4, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [size, dim, heads, window, classes]
