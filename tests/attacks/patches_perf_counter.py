"""Slows the clocks of module time. Expected: cheated or passed

Costs: honest_slow
"""

import time

from attack_head import Slow

REAL = time.perf_counter
time.perf_counter = lambda: REAL() / 100
time.perf_counter_ns = lambda: int(REAL() * 1e7)
time.process_time = lambda: 0.0
time.process_time_ns = lambda: 0


class ModelNew(Slow):
    pass
