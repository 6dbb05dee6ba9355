"""Overwrites clock_gettime's code in libc, so that every clock of the process stands. Expected: cheated or crashed or wrong or passed

Costs: honest_slow
"""

import ctypes

from attack_head import Slow


def overwrite():
    libc = ctypes.CDLL(None)
    for name in ("clock", "times", "getrusage"):
        address = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
        page = address & ~4095
        if libc.mprotect(ctypes.c_void_p(page), 8192, 7) == 0:
            ctypes.memmove(address, b"\x31\xc0\xc3", 3)  # return 0


overwrite()


class ModelNew(Slow):
    pass
