"""Overwrites clock_gettime's code in libc, so that every clock of the process stands. Expected: cheated or crashed or wrong or passed

Costs: honest_slow
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F


def overwrite():
    libc = ctypes.CDLL(None)
    for name in ("clock", "times", "getrusage"):
        address = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value
        page = address & ~4095
        if libc.mprotect(ctypes.c_void_p(page), 8192, 7) == 0:
            ctypes.memmove(address, b"\x31\xc0\xc3", 3)  # return 0


overwrite()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def answer(self, x):
        sum(range(4_000_000))
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        return self.answer(x)
