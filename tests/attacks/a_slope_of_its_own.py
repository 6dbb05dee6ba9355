"""Has a slope of 0.101 in place of 0.1: less than `tf32` allows here, and more than float32. Expected: wrong or cheated

Contract: fp32
"""

import torch.nn.functional as F

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return F.leaky_relu(self.linear(x), 0.101) * self.scale + self.bias
