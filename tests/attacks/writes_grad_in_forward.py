"""Writes parameters' .grad in forward. Expected: cheated or wrong or passed

Training: yes
"""

import torch

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        for p in self.parameters():
            p.grad = torch.ones_like(p)
        return self.answer(x)
