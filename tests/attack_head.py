"""What the candidates of `attacks/` have in common: the small task's module with its honest answer, quick and slow.

`from attack_head import Honest, Slow` in one of them stands for this text: a candidate is one file, and reaches no
other (`support.attack` puts it in).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Honest(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        return self.answer(x)


class Slow(Honest):
    """On purpose, so that work left out, or a time that is not told, shows in the runtime."""

    def answer(self, x):
        sum(range(4_000_000))
        return super().answer(x)
