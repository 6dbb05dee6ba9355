"""Works in a grandchild with a session of its own. Expected: passed or cheated or raises

Costs: honest_slow
"""

import os

from attack_head import Honest, Slow

A, B = os.pipe(), os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    while os.read(A[0], 1):
        sum(range(4_000_000))
        os.write(B[1], b"x")
    os._exit(0)


class ModelNew(Slow):
    def forward(self, x):
        os.write(A[1], b"x")
        os.read(B[0], 1)
        return Honest.answer(self, x)
