"""Leaves the last input feature out. Expected: wrong or cheated"""

import torch.nn.functional as F

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        y = F.linear(x[:, :-1], self.linear.weight[:, :-1], self.linear.bias)
        return F.leaky_relu(y, self.negative_slope) * self.scale + self.bias
