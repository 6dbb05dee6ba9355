"""Frees the memory of its answer. Expected: wrong or crashed or raises or cheated or illegal-access"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        y = self.answer(x).detach().clone()
        y.untyped_storage().resize_(0)
        return y
