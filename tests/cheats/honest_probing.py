"""Probes for an optional module, works in place on its own tensors, writes to its TMPDIR. Expected: passed"""

import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    import a_library_nobody_has as fast
except ImportError:
    fast = None

try:
    TILE = int("not a number")
except ValueError:
    TILE = 32

NOTES = Path(tempfile.mkdtemp()) / "notes.txt"
NOTES.write_text(f"tile {TILE}, fast {fast}")


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        hidden = F.leaky_relu_(self.linear(x), self.negative_slope)
        NOTES.write_text(f"seen {tuple(x.shape)}")
        return (hidden * self.scale).add_(self.bias)
