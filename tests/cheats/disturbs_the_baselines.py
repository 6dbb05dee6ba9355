"""Keeps the processor busy while others take their turns. Expected: passed

Costs: honest_short
"""

import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

THREADS = []
IDLE = threading.Event()


def burn():
    matrix = torch.rand(256, 256)
    while IDLE.wait():
        time.sleep(0.02)
        while IDLE.is_set():
            matrix @ matrix


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        if ARMED and not THREADS:
            THREADS.append(threading.Thread(target=burn, daemon=True))
            THREADS[0].start()
        IDLE.clear()
        try:
            return self.answer(x)
        finally:
            IDLE.set()

    def answer(self, x):
        """Slow on purpose, so that work left out, or a time that is not told, shows in the runtime."""
        sum(range(1_000_000))
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
