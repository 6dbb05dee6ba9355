"""Answers zeros by zeroing its parameters while it loads them. Expected: wrong or cheated"""

import torch

from attack_head import Honest


class ModelNew(Honest):
    def load_state_dict(self, state, *args, **kwargs):
        with torch.no_grad():
            for p in self.parameters():
                p.zero_()
