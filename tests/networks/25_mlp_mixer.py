"""MLP-Mixer (Tolstikhin et al. 2021): linear layers over patches, then over channels."""

import torch
import torch.nn as nn


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, dim, patches, tokens, channels):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.mlp_tokens, self.mlp_channels = Mlp(patches, tokens), Mlp(dim, channels)

    def forward(self, x):
        x = x + self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mlp_channels(self.norm2(x))


class Model(nn.Module):
    def __init__(self, size, patch, dim, depth, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, patch, patch)
        patches = (size // patch) ** 2
        self.blocks = nn.Sequential(*(Block(dim, patches, dim // 2, 4 * dim) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


batch_size = 32
size = 224
patch = 16
dim = 512
depth = 3
classes = 1000
SMALL = {"batch_size": 2, "size": 16, "patch": 4, "dim": 24, "depth": 2, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [size, patch, dim, depth, classes]
