"""Pretends that the user interrupts. Expected: raises or crashed"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        raise KeyboardInterrupt()
