"""Registers a global forward hook that answers. Expected: cheated or wrong"""

import torch.nn.modules.module as M

from attack_head import Honest

M.register_module_forward_hook(lambda module, args, out: out)


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) * 0
