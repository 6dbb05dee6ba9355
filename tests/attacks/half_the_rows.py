"""Computes half of the rows and repeats them. Expected: wrong or cheated"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x[:2]).repeat(2, 1)
