"""Answers a list that is a hundred thousand lists deep. Expected: wrong or raises or crashed"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        out = self.answer(x)
        for _ in range(100_000):
            out = [out]
        return out
