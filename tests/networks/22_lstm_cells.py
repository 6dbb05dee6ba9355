"""An LSTM (Hochreiter and Schmidhuber 1997) as a loop of cells, written out."""

import torch
import torch.nn as nn


class Cell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.ih = nn.Linear(inputs, 4 * hidden)
        self.hh = nn.Linear(hidden, 4 * hidden)

    def forward(self, x, h, c):
        i, f, g, o = (self.ih(x) + self.hh(h)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Model(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.hidden = hidden
        self.cell = Cell(inputs, hidden)
        self.fc = nn.Linear(hidden, outputs)

    def forward(self, x):
        h = torch.zeros(x.size(0), self.hidden, dtype=x.dtype, device=x.device)
        c = torch.zeros(x.size(0), self.hidden, dtype=x.dtype, device=x.device)
        states = []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], h, c)
            states.append(h)
        return self.fc(torch.stack(states, dim=1)), c


batch_size = 128
length = 64
inputs = 128
hidden = 512
SMALL = {"batch_size": 3, "length": 6, "inputs": 6, "hidden": 8}


def get_inputs():
    return [torch.randn(batch_size, length, inputs)]


def get_init_inputs():
    return [inputs, hidden, 10]
