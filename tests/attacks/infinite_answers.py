"""Answers infinity. Expected: wrong or cheated"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) + float("inf")
