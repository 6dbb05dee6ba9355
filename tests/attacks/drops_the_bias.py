"""Leaves the linear layer's bias out. Expected: wrong or cheated"""

import torch.nn.functional as F

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return F.leaky_relu(F.linear(x, self.linear.weight), self.negative_slope) * self.scale + self.bias
