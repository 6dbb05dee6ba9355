"""Changes its input from a thread, after it has answered. Expected: cheated or wrong or passed"""

import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def answer(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias

    def forward(self, x):
        y = self.answer(x)

        def later():
            time.sleep(0.002)
            with torch.no_grad():
                x.detach().zero_()

        threading.Thread(target=later).start()
        return y
