"""A batched product of two inputs, instance norm over the last dim, the sum with a third input and the product
with it."""

import torch
import torch.nn as nn

batch_size = 32
rows = 1024
inner = 128
columns = 1024

SMALL = {"batch_size": 3, "rows": 7, "inner": 9, "columns": 45}


class Model(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.norm = nn.InstanceNorm1d(rows)

    def forward(self, a, b, residual):
        x = self.norm(torch.bmm(a, b))
        return (x + residual) * residual


def get_inputs():
    return [
        torch.randn(batch_size, rows, inner),
        torch.randn(batch_size, inner, columns),
        torch.randn(batch_size, rows, columns),
    ]


def get_init_inputs():
    return [rows]
