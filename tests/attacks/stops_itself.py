"""Stops itself for good. Expected: timed-out or crashed"""

import os
import signal

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSTOP)
        return self.answer(x)
