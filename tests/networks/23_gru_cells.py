"""A bidirectional nn.GRU, and a GRU (Cho et al. 2014) as a loop of cells on top."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.gru = nn.GRU(inputs, hidden, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(2 * hidden, hidden)
        self.start = nn.Parameter(torch.zeros(1, hidden))
        self.fc = nn.Linear(hidden, outputs)

    def forward(self, x):
        x, _ = self.gru(x)
        h = self.start.expand(x.size(0), -1)
        for step in x.unbind(1):
            h = self.cell(step, h)
        return self.fc(h)


batch_size = 128
length = 48
inputs = 128
hidden = 256
SMALL = {"batch_size": 3, "length": 5, "inputs": 6, "hidden": 8}


def get_inputs():
    return [torch.randn(batch_size, length, inputs)]


def get_init_inputs():
    return [inputs, hidden, 10]
