"""Leaves the work to a finaliser. Expected: wrong or cheated or passed

Costs: honest_slow
"""

import weakref

import torch.nn.functional as F

from attack_head import Slow


class Later:
    pass


class ModelNew(Slow):
    def forward(self, x):
        y = F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
        later = Later()
        weakref.finalize(later, lambda: sum(range(4_000_000)))
        return y
