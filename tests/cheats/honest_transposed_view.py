"""Returns a transposed view of memory that it took empty and filled, element by element. Expected: passed"""

import gc
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

gc.collect()
LOADED_AT = time.perf_counter()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        """Feature by feature into rows, handed out as columns."""
        hidden = F.leaky_relu(self.linear(x), self.negative_slope)
        rows = torch.empty(self.scale.numel(), x.shape[0], dtype=x.dtype, device=x.device)
        for feature in range(self.scale.numel()):
            rows[feature] = hidden[:, feature] * self.scale[feature] + self.bias[feature]
        return rows.t()
