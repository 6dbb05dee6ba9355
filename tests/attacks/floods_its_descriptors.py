"""Writes rubbish into every descriptor that it has. Expected: crashed or wrong or raises or cheated or timed-out"""

import os

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        for fd in range(3, 64):
            try:
                os.set_blocking(fd, False)
                os.write(fd, b'{"device_ms": 0}\n' * 1000)
            except OSError:
                pass
        return self.answer(x)
