"""Puts the input in order, slowly. Expected: passed"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return self.answer(x)

    def answer(self, x):
        """Slow on purpose, so that work left out, or a time that is not told, shows in the runtime."""
        sum(range(700_000))
        return torch.sort(x.flatten()).values * 2
