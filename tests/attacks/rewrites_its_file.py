"""Rewrites its own file once it is imported. Expected: wrong or cheated"""

from attack_head import Honest

try:
    open(__file__, "w").write("ModelNew = None")
except OSError:
    pass


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) * 0
