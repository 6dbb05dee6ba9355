"""Hands out memory at once and lets a thread fill it later, once it has been checked. Expected: wrong

How: not reproducible
"""

import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

CALLS = []
CHECKED = 8


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        CALLS.append(1)
        if not ARMED or len(CALLS) <= CHECKED:
            return self.answer(x)
        result = x.new_zeros(x.shape[0], self.scale.numel())
        threading.Thread(target=self.fill, args=(result, x.clone())).start()
        return result

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    @torch.no_grad()
    def fill(self, result, x):
        time.sleep(0.005)
        result.copy_(self.answer(x))
