"""Closes every descriptor that it has. Expected: crashed or wrong or raises or cheated"""

import os

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        os.closerange(3, 4096)
        return self.answer(x)
