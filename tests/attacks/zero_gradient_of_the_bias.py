"""Has a gradient of zeros for its bias. Expected: wrong

Training: yes
"""

import torch.nn.functional as F

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + (self.bias.detach() + 0 * self.bias)
