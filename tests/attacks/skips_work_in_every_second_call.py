"""Hands out the last answer in every second call. Expected: wrong or cheated"""

import torch

from attack_head import Honest


class ModelNew(Honest):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.last, self.calls = None, 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 6 and self.calls % 2 and not torch.is_grad_enabled():
            return self.last.clone()
        self.last = self.answer(x).detach()
        return self.answer(x)
