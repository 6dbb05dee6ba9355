"""Has gradients that are right for a cotangent of ones. Expected: wrong

Training: yes
"""

import torch

from attack_head import Honest


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, g):
        return torch.ones_like(g) * g.mean()


class ModelNew(Honest):
    def forward(self, x):
        return Wrong.apply(self.answer(x))
