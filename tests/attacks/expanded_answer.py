"""Answers one row for all. Expected: wrong or cheated"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x)[:1].expand(4, 16)
