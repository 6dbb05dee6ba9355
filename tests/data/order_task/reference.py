"""A task whose answer does not depend on the order of its input's elements: they come back in order."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sort(x.flatten()).values * 2


batch_size = 8
features = 1024


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return []
