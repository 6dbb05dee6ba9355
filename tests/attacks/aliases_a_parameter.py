"""Answers with the memory of a parameter. Expected: wrong or cheated"""

import torch
import torch.nn as nn

from attack_head import Honest


class ModelNew(Honest):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.big = nn.Parameter(torch.zeros(4, 16))

    def forward(self, x):
        with torch.no_grad():
            self.big.copy_(self.answer(x))
        return self.big
