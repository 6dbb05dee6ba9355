"""Reads the cotangent's memory as if it were contiguous. Expected: wrong

Training: yes
"""

import torch

from attack_head import Honest


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, g):
        n = g.numel()
        flat = torch.as_strided(g, (min(n, g.untyped_storage().nbytes() // 4),), (1,), 0)
        return flat.repeat(n // len(flat) + 1)[:n].reshape(g.shape).clone()


class ModelNew(Honest):
    def forward(self, x):
        return Flat.apply(self.answer(x))
