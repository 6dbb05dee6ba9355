"""Its own operator raises on every call, and PyTorch quietly takes its place. Expected: passed

Finding: fallback: an exception was caught in forward
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True


@torch.library.custom_op("cheat::fused", mutates_args=())
def fused(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no kernel for this shape")


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        if ARMED:
            try:
                return fused(x)
            except RuntimeError:
                pass
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
