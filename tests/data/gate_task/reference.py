"""A task with a branch that does nothing under the weights that it is constructed with: its gate is zero."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.gate = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return x + self.gate * torch.tanh(self.linear(x))


batch_size = 4
features = 8


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features]
