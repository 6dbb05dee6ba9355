"""A task that takes milliseconds, with weights of every kind: of a shape of their own, square ones of one shape, ones
and zeros."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.first = nn.Linear(width, inner)
        self.norm = nn.LayerNorm(inner)
        self.left = nn.Linear(inner, inner, bias=False)
        self.right = nn.Linear(inner, inner, bias=False)

    def forward(self, x):
        hidden = F.gelu(self.norm(self.first(x)))
        return self.left(hidden) * torch.tanh(self.right(hidden))


batch_size = 4
width = 8
inner = 16


def get_inputs():
    return [torch.rand(batch_size, width)]


def get_init_inputs():
    return [width, inner]
