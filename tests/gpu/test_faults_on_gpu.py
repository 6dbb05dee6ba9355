"""What only a GPU can show: launch errors, illegal accesses, poison in device memory, replaced workers."""

from __future__ import annotations

from pathlib import Path

import pytest

import crucible

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, 0.1) + 1.0

def get_inputs():
    return [torch.rand(64, 33) - 0.5]

def get_init_inputs():
    return []
"""
CUDA = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

module = load_inline(
    name="{name}",
    cpp_sources=r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>
void launch(const float* x, float* y, int n);
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    launch(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
""",
    cuda_sources=r"""
__global__ void kernel(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
void launch(const float* x, float* y, int n) {{
    kernel<<<{launch}>>>(x, y, n);
}}
""",
    functions=["run"],
    no_implicit_headers=True,  # nvcc takes 40 s for PyTorch's
)

class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x)
'''
RIGHT = "if (i < n) y[i] = (x[i] > 0 ? x[i] : 0.1f * x[i]) + 1.0f;"
GRID = "(n + 255) / 256, 256"
CANDIDATES = {
    "right": (RIGHT, GRID, "passed"),
    "unwritten_tail": ("if (i < n - 7) y[i] = (x[i] > 0 ? x[i] : 0.1f * x[i]) + 1.0f;", GRID, "incomplete"),
    "too_many_threads": (RIGHT, "1, 4096", "launch-error"),
    "far_out_of_bounds": ("y[i + (1LL << 33)] = x[i];", GRID, "illegal-access"),
    "right_after_faults": (RIGHT, GRID, "passed"),
    "endless_loop": ("while (x[0] < 1e30f) if (i == n) y[0] = 1; " + RIGHT, GRID, "timed-out"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "reference.py").write_text(TASK)
    files = []
    for name, (body, launch, _) in CANDIDATES.items():
        file = folder / f"{name}.py"
        file.write_text(CUDA.format(name=f"gpu_test_{name}", body=body, launch=launch))
        files.append(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRUCIBLE_HOME", str(folder / "home"))
        return crucible.judge(folder / "reference.py", files, device="cuda", limits=crucible.Limits(run_s=15))


@pytest.mark.parametrize("name", CANDIDATES)
def test_fault_is_named(run: crucible.Run, name: str) -> None:
    assert run.verdict(name).outcome.kind == CANDIDATES[name][2], run.verdict(name).outcome.words


def test_oracle_keeps_within_three_copies_of_the_largest_tensor(tmp_path: Path) -> None:
    """P90 at full size: the device memory that the judge itself takes, beside the candidate's."""
    import gpu_memory

    copies, peak = gpu_memory.oracle_peak_copies(tmp_path)
    assert copies <= 3.0, f"the oracle held {peak >> 20} MiB"
