"""Answers a NaN in one place. Expected: wrong or cheated"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        y = self.answer(x).clone()
        y[0, 0] = float("nan")
        return y
