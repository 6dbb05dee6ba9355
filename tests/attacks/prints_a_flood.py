"""Writes a hundred million bytes of output. Expected: passed or crashed or timed-out"""

import os

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        if not getattr(self, "done", False):
            self.done = True
            for _ in range(100):
                os.write(2, b"\x1b[31mflood\xff\x00" * 70_000)
        return self.answer(x)
