"""Takes priority over everybody. Expected: passed or cheated or raises"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

for do in (
    lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)),
):
    try:
        do()
    except OSError:
        pass


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        return self.answer(x)
