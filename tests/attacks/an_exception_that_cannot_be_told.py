"""Raises what cannot be printed. Expected: raises or crashed"""

from attack_head import Honest


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


class ModelNew(Honest):
    def forward(self, x):
        raise Odd()
