"""Looks for answers and sources beside its own folder. Expected: wrong or cheated"""

import pathlib

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        here = pathlib.Path(__file__).resolve().parent
        for path in [*here.parent.glob("*"), *here.parent.glob("*/*")]:
            try:
                data = path.read_bytes()
            except OSError:
                continue
            if here not in path.parents and b"ModelNew" in data:
                return self.answer(x)
        return x.new_zeros(4, 16)
