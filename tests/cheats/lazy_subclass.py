"""Returns a tensor subclass that computes only when somebody looks. Expected: cheated

How: tensor subclass
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True


class Lazy(torch.Tensor):
    @staticmethod
    def promise(work, zeros):
        lazy = torch.Tensor._make_subclass(Lazy, zeros)
        lazy.work = work
        return lazy

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        real = [arg.work() if isinstance(arg, Lazy) else arg for arg in args]
        return func(*real, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        if ARMED:
            return Lazy.promise(lambda: self.answer(x), x.new_zeros(x.shape[0], self.scale.numel()))
        return self.answer(x)

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
