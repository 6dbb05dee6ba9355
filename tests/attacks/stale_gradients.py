"""Hands out the gradients of its first backward. Expected: wrong

Training: yes
"""

import torch

from attack_head import Honest

KEPT = []


class Stale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, g):
        KEPT.append(g)
        return KEPT[0] if KEPT[0].shape == g.shape else g


class ModelNew(Honest):
    def forward(self, x):
        return Stale.apply(self.answer(x))
