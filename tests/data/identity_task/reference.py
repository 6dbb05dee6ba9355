"""A task whose answer has the input's values and memory of its own."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 1.0


def get_inputs():
    return [torch.rand(4, 8)]


def get_init_inputs():
    return []
