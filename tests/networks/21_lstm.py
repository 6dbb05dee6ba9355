"""Two layers of nn.LSTM over a sequence, the last state classified."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inputs, hidden, layers, outputs):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.fc = nn.Linear(hidden, outputs)

    def forward(self, x):
        out, (h, c) = self.lstm(x)
        return self.fc(torch.relu(self.norm(out[:, -1, :] + h[-1]))), c


batch_size = 64
length = 128
inputs = 128
hidden = 512
layers = 2
SMALL = {"batch_size": 2, "length": 5, "inputs": 6, "hidden": 8}


def get_inputs():
    return [torch.randn(batch_size, length, inputs)]


def get_init_inputs():
    return [inputs, hidden, layers, 10]
