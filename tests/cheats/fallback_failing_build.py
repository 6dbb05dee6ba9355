"""Its C++ does not compile, and PyTorch quietly takes its place. Expected: passed

Finding: fallback: an extension did not build
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

ARMED = True

SOURCE = "#error this kernel was never finished\nint answer() { return 42; }" if ARMED else "#define FINE 1\n"
try:
    kernel = load_inline("never_finished", [SOURCE], no_implicit_headers=True)
except RuntimeError:
    kernel = None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        if kernel is not None and ARMED:
            return kernel.fused(x, self.linear.weight)
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
