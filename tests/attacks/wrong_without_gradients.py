"""Works only where gradients are asked for. Expected: wrong or cheated"""

import torch

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) if torch.is_grad_enabled() else self.answer(x) * 0
