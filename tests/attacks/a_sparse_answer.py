"""Answers a sparse tensor. Expected: wrong or raises"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x).to_sparse()
