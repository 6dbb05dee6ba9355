"""`crucible init`: a task and a candidate to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crucible.errors import MisuseError, StoreError
from crucible.report.words import words

TASK = '''"""A linear layer, a bias and a ReLU: replace by the module that you want to be faster."""

import torch
from torch import nn

batch_size = 1024
in_features = 512
out_features = 256
SMALL = {"batch_size": 24, "in_features": 40, "out_features": 24}  # where there is no GPU


class Model(nn.Module):
    """What candidates must compute: `ModelNew` takes the same arguments and has the same weights."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x) + self.bias)


def get_inputs() -> list[torch.Tensor]:
    """The arguments of forward."""
    return [torch.randn(batch_size, in_features)]


def get_init_inputs() -> list[object]:
    """The arguments of the constructor."""
    return [in_features, out_features]
'''
CANDIDATE = '''"""Bias and ReLU in one kernel behind PyTorch's product: a start, to be made faster."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>

__global__ void bias_relu_kernel(const float* x, const float* bias, float* out, int count, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = fmaxf(x[i] + bias[i % columns], 0.0f);
}

torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias) {
    auto out = torch::empty_like(x);
    int count = x.numel();
    bias_relu_kernel<<<(count + 255) / 256, 256>>>(
        x.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), count, bias.numel());
    return out;
}
"""
CPP = "torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias);"
extension = load_inline("bias_relu", cpp_sources=CPP, cuda_sources=CUDA, functions=["bias_relu"])


class ModelNew(nn.Module):
    """The same computation; weights are copied from `Model` by name."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.bias_relu(self.linear(x).contiguous(), self.bias)
'''
FILES = {"reference.py": TASK, "candidates/one_kernel.py": CANDIDATE}


def init(
    folder: Annotated[Path, typer.Argument(help="The folder to write into.")] = Path("task"),
) -> None:
    """Write a task and a candidate to start from, which `crucible judge` takes at once.

    Nothing is overwritten. Example: crucible init my_task && crucible judge my_task
    """
    there = [name for name in FILES if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        raise MisuseError(f"{folder} has {', '.join(there)} already: name another folder")
    try:
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("x", encoding="utf-8") as new:
                new.write(text)
    except FileExistsError as error:
        raise MisuseError(f"{error.filename} is in the way: name another folder") from error
    except OSError as error:
        raise StoreError(f"cannot write into {folder}: {error}") from error
    out = Console()
    out.print(words(f"written: {', '.join(str(folder / name) for name in FILES)}"), soft_wrap=True)
    out.print(words(f"next: crucible judge {folder} --watch"), soft_wrap=True)
