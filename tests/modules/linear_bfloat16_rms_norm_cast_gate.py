"""Linear in bfloat16, RMS norm written by hand in float32 with casts both ways, SiLU times a second input (a gated
unit)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16384
in_features = 1024
out_features = 4096

SMALL = {"batch_size": 5, "in_features": 11, "out_features": 70}


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.weight = nn.Parameter(torch.rand(out_features) + 0.5)
        self.to(torch.bfloat16)

    def forward(self, x, gate):
        x = self.linear(x).float()
        x = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-5)
        x = x.to(torch.bfloat16) * self.weight
        return F.silu(x) * gate


def get_inputs():
    return [
        torch.randn(batch_size, in_features).to(torch.bfloat16),
        torch.randn(batch_size, out_features).to(torch.bfloat16),
    ]


def get_init_inputs():
    return [in_features, out_features]
