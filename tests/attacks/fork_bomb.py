"""Forks without end. Expected: wrong or crashed or raises or out-of-memory or timed-out or cheated"""

import os

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        for _ in range(2000):
            try:
                if os.fork() == 0:
                    import time

                    time.sleep(1000)
            except OSError:
                break
        return self.answer(x) * 0
