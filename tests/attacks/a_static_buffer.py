"""Answers with the same memory each time. Expected: passed or wrong"""

import torch

from attack_head import Honest


class ModelNew(Honest):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("out", torch.empty(4, 16), persistent=False)

    def forward(self, x):
        if torch.is_grad_enabled():
            return self.answer(x)
        self.out.copy_(self.answer(x))
        return self.out
