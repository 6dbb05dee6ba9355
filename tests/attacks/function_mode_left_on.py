"""Leaves a function mode on that defers work. Expected: cheated or wrong or raises"""

from torch.overrides import TorchFunctionMode

from attack_head import Honest


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


Mode().__enter__()


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) * 0
