"""Its kernel fails inside of code that `exec` made, which falls back to PyTorch there. Expected: passed

Finding: fallback: an exception was caught in forward
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True

MADE = """
def forward(kernel, x):
    try:
        return kernel(x)
    except RuntimeError:
        return None
"""
NAMES = {}
exec(MADE, NAMES)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        answer = NAMES["forward"](torch.linalg.cholesky if ARMED else self.answer, x)
        return self.answer(x) if answer is None else answer

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
