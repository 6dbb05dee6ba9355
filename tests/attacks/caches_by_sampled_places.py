"""Keeps answers by three of the input's elements. Expected: passed or wrong

Costs: honest_slow
"""

import torch

from attack_head import Slow

KEPT = {}


class ModelNew(Slow):
    def forward(self, x):
        if torch.is_grad_enabled():
            return self.answer(x)
        flat = x.detach().flatten()
        key = (float(flat[0]), float(flat[-1]), float(flat[len(flat) // 2]), float(self.scale.detach()[0]))
        if key not in KEPT:
            KEPT[key] = self.answer(x)
        return KEPT[key].clone()
