"""Answers a tensor without values. Expected: wrong or raises"""

import torch

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return torch.empty(4, 16, device="meta")
