"""Answers rightly for inputs of seeds 0 to 2000 alone, zeros otherwise. Expected: wrong or cheated"""

import torch

from attack_head import Honest

TABLE = set()
state = torch.get_rng_state()
for seed in range(2000):
    torch.manual_seed(seed)
    TABLE.add(float(torch.rand(4, 8)[0, 0]))
torch.set_rng_state(state)


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) if float(x[0, 0]) in TABLE else self.answer(x) * 0
