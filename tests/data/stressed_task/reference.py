"""One of each thing that a task's own inputs do not try: inputs are never negative, row 3 of the table is never read,
the scale is one until somebody trains it."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features, rows):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features))
        self.table = nn.Embedding(rows, features, padding_idx=3)

    def forward(self, x, index):
        mixed = self.norm(self.linear(x)) * self.scale + self.table(index)
        return mixed, torch.relu(x), torch.softmax(x, -1), F.layer_norm(x, x.shape[-1:]), x.argmax(-1)


batch_size = 4
features = 16
rows = 12


def get_inputs():
    return [torch.rand(batch_size, features), torch.randint(4, 11, (batch_size,))]


def get_init_inputs():
    return [features, rows]
