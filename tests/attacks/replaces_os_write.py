"""Replaces os.write and socket functions to write what it likes. Expected: cheated or crashed or wrong"""

import os

from attack_head import Honest

REAL = os.write
os.write = lambda fd, data: REAL(fd, bytes(len(data)))


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) * 0
