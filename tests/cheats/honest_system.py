"""Threads, children, temporary files, copies, memory without a name, a touched marker. Expected: passed"""

import mmap
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

with ThreadPoolExecutor(2) as pool:
    SQUARES = list(pool.map(lambda n: n * n, range(4)))
FOLDER = Path(tempfile.mkdtemp())
(FOLDER / "kernel.h").write_text("#define TILE 32\n")
shutil.copy2(FOLDER / "kernel.h", FOLDER / "copy.h")
(FOLDER / "built").touch()
os.chmod(FOLDER / "copy.h", 0o644)
TILE = int(subprocess.run(["grep", "-o", "[0-9]*", "copy.h"], cwd=FOLDER, capture_output=True, check=True).stdout)
MEMORY = os.memfd_create("weights")
os.write(MEMORY, bytes(4096))
VIEW = mmap.mmap(MEMORY, 4096)
assert (FOLDER / "built").exists() and TILE == 32 and SQUARES == [0, 1, 4, 9]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias
