"""Builds libraries and a program by calling a compiler, and by PyTorch in a folder of its own. Expected: passed"""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load

FOLDER = Path(tempfile.mkdtemp())
SOURCE = 'extern "C" void scaled(float* x, int n, float by) { for (int i = 0; i < n; ++i) x[i] *= by; }\n'
(FOLDER / "scaled.cpp").write_text(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", "scaled.cpp", "-o", "scaled.so"], cwd=FOLDER, check=True)
BY_HAND = ctypes.CDLL(str(FOLDER / "scaled.so")).scaled
subprocess.run(["g++", "-xc++", "-", "-o", "linked"], cwd=FOLDER, check=True, input=b"int main() { return 7; }")
with open(os.open(FOLDER / "program", os.O_CREAT | os.O_WRONLY, 0o755), "wb") as program:
    program.write((FOLDER / "linked").read_bytes())
assert subprocess.run([FOLDER / "program"], check=False).returncode == 7
(FOLDER / "ninja").mkdir()
how = {"build_directory": str(FOLDER / "ninja"), "is_python_module": False}
load("scaled_by_ninja", [str(FOLDER / "scaled.cpp")], **how)
BY_NINJA = ctypes.CDLL(str(next((FOLDER / "ninja").glob("scaled_by_ninja*.so")))).scaled


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        y = F.leaky_relu(self.linear(x), self.negative_slope)
        if not torch.is_grad_enabled():
            y = y.cpu()
            for function, by in ((BY_HAND, 2.0), (BY_NINJA, 0.5)):
                function(ctypes.c_void_p(y.data_ptr()), y.numel(), ctypes.c_float(by))
        return y.to(x.device) * self.scale + self.bias
