"""Calls itself until the stack is gone. Expected: raises or crashed or out-of-memory or timed-out"""

import sys

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        sys.setrecursionlimit(10**9)
        return self.forward(x)
