"""Leaves a dispatch mode on that answers copies with zeros. Expected: cheated or wrong or raises"""

from torch.utils._python_dispatch import TorchDispatchMode

from attack_head import Honest


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


Mode().__enter__()


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) * 0
