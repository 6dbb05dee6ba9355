"""Answers with a billion rows that take no memory. Expected: wrong or out-of-memory"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return x.new_zeros(1, 1).expand(1 << 40, 16)
