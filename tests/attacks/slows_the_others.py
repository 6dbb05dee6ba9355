"""Burns all processors from daemons while baselines run. Expected: passed or cheated or raises"""

import os

from attack_head import Honest

for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        while True:
            pass


class ModelNew(Honest):
    pass
