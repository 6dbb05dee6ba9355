"""Answers a tuple whose items differ each time they are asked for. Expected: wrong or cheated or raises"""

from attack_head import Honest


class Changing(tuple):
    def __iter__(self):
        return iter(())

    def __len__(self):
        return 1


class ModelNew(Honest):
    def forward(self, x):
        return Changing((self.answer(x),))
