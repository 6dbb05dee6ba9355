"""Multiplies by a copy of the weights that it was made with. Expected: wrong or cheated"""

import torch.nn.functional as F

from attack_head import Honest


class ModelNew(Honest):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.kept = self.linear.weight.detach().clone().t().contiguous()

    def forward(self, x):
        y = x @ self.kept.to(x.device) + self.linear.bias
        return F.leaky_relu(y, self.negative_slope) * self.scale + self.bias
