"""Returns plain tensors when checked; timed, a subclass that computes when copied. Expected: wrong or cheated or passed

Costs: honest_short
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

CALLS = []
CHECKED = 8


class Lazy(torch.Tensor):
    @staticmethod
    def promise(work, zeros):
        lazy = torch.Tensor._make_subclass(Lazy, zeros)
        lazy.work = work
        return lazy

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        real = [arg.work() if isinstance(arg, Lazy) else arg for arg in args]
        with torch._C.DisableTorchFunctionSubclass():
            return func(*real, **(kwargs or {}))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        CALLS.append(1)
        if ARMED and len(CALLS) > CHECKED:
            return Lazy.promise(lambda: self.answer(x), x.new_zeros(x.shape[0], self.scale.numel()))
        return self.answer(x)

    def answer(self, x):
        """Slow on purpose, so that work left out, or a time that is not told, shows in the runtime."""
        sum(range(1_000_000))
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
