"""Sends SIGKILL to all it may. Expected: crashed or wrong or cheated"""

import os
import signal

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        for pid in (-1, os.getppid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        return self.answer(x) * 0
