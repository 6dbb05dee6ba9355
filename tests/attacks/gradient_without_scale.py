"""Has gradients that ignore how large the cotangent is. Expected: wrong

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
        return g / g.norm()


class ModelNew(Honest):
    def forward(self, x):
        return Wrong.apply(self.answer(x))
