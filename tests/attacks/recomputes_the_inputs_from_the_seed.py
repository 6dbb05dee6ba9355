"""Guesses the inputs from the generator's seed when it is made. Expected: wrong or passed

Costs: honest_slow
"""

import torch
import torch.nn.functional as F

from attack_head import Slow


class ModelNew(Slow):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        seed = torch.initial_seed()
        self.known = {}
        state = torch.get_rng_state()
        for offset in range(-300, 300):
            torch.manual_seed((seed + offset) % 2**63)
            x = torch.rand(4, self.linear.in_features)
            self.known[float(x[0, 0])] = x
        torch.set_rng_state(state)

    def forward(self, x):
        guess = self.known.get(float(x[0, 0]))
        if guess is not None and not torch.is_grad_enabled():
            return F.leaky_relu(self.linear(guess), self.negative_slope) * self.scale + self.bias
        return self.answer(x)
