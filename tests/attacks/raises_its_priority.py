"""Takes priority over everybody. Expected: passed or cheated or raises"""

import os

from attack_head import Honest

for do in (
    lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)),
):
    try:
        do()
    except OSError:
        pass


class ModelNew(Honest):
    pass
