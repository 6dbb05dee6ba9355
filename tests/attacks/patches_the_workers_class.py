"""Finds the worker in the heap and replaces its methods. Expected: cheated or wrong or passed

Costs: honest_slow
"""

import gc

from attack_head import Slow

for thing in gc.get_objects():
    if type(thing).__name__ == "Worker":
        type(thing).sample = lambda self, request: {"device_ms": 1e-6, "wall_ms": 1e-6}


class ModelNew(Slow):
    pass
