"""Multiplies by a copy of its weight that only load_state_dict renews. Expected: passed

Rule: a step of SGD

Finding: fragile
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features, rows):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features))
        self.table = nn.Embedding(rows, features, padding_idx=3)
        self.register_load_state_dict_post_hook(lambda module, keys: module.keep())
        self.keep()

    def forward(self, x, index):
        mixed = self.norm(self.linear(x) + self.kept(x)) * self.scale + self.table(index)
        return mixed, torch.relu(x), torch.softmax(x, -1), F.layer_norm(x, x.shape[-1:]), x.argmax(-1)

    def keep(self):
        self.weight = self.linear.weight.detach().clone()

    def kept(self, x):
        return x @ (self.weight - self.linear.weight.detach()).T
