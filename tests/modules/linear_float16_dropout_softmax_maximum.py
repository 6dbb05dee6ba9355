"""Linear in float16, dropout as in eval mode, softmax over features, a factor, maximum with a tensor of another
shape (one number per row)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8192
in_features = 1024
out_features = 4096

SMALL = {"batch_size": 5, "in_features": 11, "out_features": 70}


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.half()

    def forward(self, x, floor):
        x = F.dropout(self.matmul(x), 0.2, training=False)
        x = torch.softmax(x, dim=1) * x.shape[1]
        return torch.max(x, floor)


def get_inputs():
    return [
        torch.randn(batch_size, in_features).half(),
        torch.rand(batch_size, 1).half(),
    ]


def get_init_inputs():
    return [in_features, out_features]
