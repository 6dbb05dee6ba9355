"""What the shipped candidates say of themselves."""

from __future__ import annotations

import re
from pathlib import Path

ZEROS = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()

    def forward(self, x):
        return torch.zeros({shape}, dtype=x.dtype, device=x.device)
"""
SHAPES = {
    "conv3d_leakyrelu_sum_clamp_gelu": {"small": (2, 64, 4, 7, 8), "full": (128, 64, 14, 62, 62)},
    "convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool": {"small": (3, 32, 3, 5, 7), "full": (16, 32, 16, 32, 32)},
    "avgpool3d_convtranspose3d_clamp_softmax_scale": {"small": (2, 64, 6, 9, 10), "full": (32, 64, 32, 64, 64)},
}
"""Each task's output shape."""
TASKS = sorted(p.parent for p in (Path(__file__).parents[1] / "tasks").glob("*/reference.py"))


def write_zeros(folder: Path, task: Path, scale: str) -> Path:
    """A candidate that returns zeros of the right shape."""
    file = folder / "zeros.py"
    file.write_text(ZEROS.format(shape=SHAPES[task.name][scale]))
    return file


def stated_kind(file: Path, contract: str) -> str:
    """The verdict that a candidate's first line states for a contract."""
    line = file.read_text().splitlines()[0]
    stated = re.search(r"Expected: ([\w-]+)((?:; \w+: [\w-]+)*)\.\"\"\"", line)
    assert stated, f"{file} states no verdict on its first line"
    differing = dict(part.split(": ") for part in stated[2].split("; ") if part)
    return differing.get(contract, stated[1])
