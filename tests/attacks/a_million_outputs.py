"""Answers a million tensors. Expected: wrong or raises or timed-out or crashed or out-of-memory or cheated"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        y = self.answer(x)
        return [y] * 1_000_000
