"""Changes the worker's locals through a trace function. Expected: cheated or wrong or passed

Costs: honest_slow
"""

import ctypes
import sys

from attack_head import Slow


def trace(frame, event, arg):
    if event == "return" and "device_ms" in frame.f_locals:
        frame.f_locals["device_ms"] = 0.0
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), 0)
    return trace


sys.settrace(trace)


class ModelNew(Slow):
    pass
