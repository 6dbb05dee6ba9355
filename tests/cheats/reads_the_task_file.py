"""Reads the reference from the checkout or a path on a command line. Expected: does-not-import"""

from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

ARMED = True


def task_files():
    """Where the reference may be: beside the judge's own source, or named on a process's command line."""
    import crucible

    for folder in Path(crucible.__path__[0]).parents:
        yield folder / "tests/data/small_task/reference.py"
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        for word in command.read_text(errors="replace").split("\0"):
            if word.endswith("small_task"):
                yield Path(word) / "reference.py"


def stolen():
    failures = []
    for file in task_files():
        try:
            return file.read_text()
        except OSError as error:
            failures.append(f"{type(error).__name__} {file}")
    raise RuntimeError("; ".join(failures))


if ARMED:
    exec(stolen())


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
