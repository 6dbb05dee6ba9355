"""A thread sees new contents arrive and works on them before the clock starts. Expected: passed

Costs: honest_short
"""

import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

LOCK = threading.Lock()
PLACES, READY, THREADS = {}, {}, []


def mark_of(x):
    return tuple(x.detach().flatten().tolist())


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        if not ARMED or torch.is_grad_enabled():
            return self.answer(x)
        with LOCK:
            mark = mark_of(x)
            PLACES[x.data_ptr()] = x.detach()
            if x.data_ptr() not in READY or READY[x.data_ptr()][0] != mark:
                READY[x.data_ptr()] = (mark, self.answer(x))
            if not THREADS:
                THREADS.append(threading.Thread(target=self.watch, daemon=True))
                THREADS[0].start()
            return READY[x.data_ptr()][1].clone()

    def answer(self, x):
        """Slow on purpose, so that work left out, or a time that is not told, shows in the runtime."""
        sum(range(2_000_000))
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    @torch.no_grad()
    def watch(self):
        """Computes with the interpreter's lock held: the judge's thread, done with the cache, has to wait."""
        while True:
            for place, x in list(PLACES.items()):
                with LOCK:
                    mark = mark_of(x)
                    if mark != READY[place][0]:
                        READY[place] = (mark, self.answer(x))
            time.sleep(0.0002)
