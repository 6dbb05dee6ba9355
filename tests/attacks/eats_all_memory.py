"""Asks for all of the memory. Expected: out-of-memory or crashed or raises or timed-out"""

import torch

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        self.hoard = []
        while True:
            self.hoard.append(torch.ones(1 << 27))
