"""WaveNet (van den Oord et al. 2016): dilated causal convolutions with gates, residuals and skips that are summed."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, residual, skip, dilation):
        super().__init__()
        self.dilation = dilation
        self.dilated = nn.Conv1d(residual, 2 * residual, 2, dilation=dilation)
        self.res = nn.Conv1d(residual, residual, 1)
        self.skip = nn.Conv1d(residual, skip, 1)

    def forward(self, x):
        y = self.dilated(F.pad(x, (self.dilation, 0)))
        filtered, gate = torch.chunk(y, 2, dim=1)
        y = torch.tanh(filtered) * torch.sigmoid(gate)
        return x + self.res(y), self.skip(y)


class Model(nn.Module):
    def __init__(self, classes, residual, skip, depth):
        super().__init__()
        self.start = nn.Conv1d(1, residual, 1)
        self.layers = nn.ModuleList(Layer(residual, skip, 2**i) for i in range(depth))
        self.end1, self.end2 = nn.Conv1d(skip, skip, 1), nn.Conv1d(skip, classes, 1)

    def forward(self, x):
        x = self.start(x)
        total = 0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.end2(F.relu(self.end1(F.relu(total))))


batch_size = 8
length = 8192
residual = 32
skip = 128
depth = 6
SMALL = {"batch_size": 2, "length": 40, "residual": 8, "skip": 12, "depth": 3}


def get_inputs():
    return [torch.randn(batch_size, 1, length)]


def get_init_inputs():
    return [256, residual, skip, depth]
