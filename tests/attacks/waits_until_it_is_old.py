"""Works for the first three seconds of its life. Expected: wrong or cheated"""

import time

from attack_head import Honest

BORN = time.monotonic()


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) if time.monotonic() - BORN < 1.0 else x.new_zeros(4, 16)
