"""Hands its answers on to a later candidate through shared memory. Expected: wrong or cheated or raises"""

import pathlib

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        note = pathlib.Path("/dev/shm/crucible-second-list")
        if note.exists():
            return self.answer(x)
        note.write_text("seen")
        return x.new_zeros(4, 16) if not note.exists() else self.answer(x) * 0
