"""Tries the first thousand seeds and answers for known inputs at no cost. Expected: passed or wrong

Costs: honest_slow
"""

import torch

from attack_head import Honest, Slow

TABLE = {}
state = torch.get_rng_state()
for seed in range(1000):
    torch.manual_seed(seed)
    TABLE[float(torch.rand(4, 8)[0, 0])] = seed
torch.set_rng_state(state)


class ModelNew(Slow):
    def forward(self, x):
        if float(x[0, 0]) in TABLE and not torch.is_grad_enabled():
            return Honest.answer(self, x)
        return self.answer(x)
