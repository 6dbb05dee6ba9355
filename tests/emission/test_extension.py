"""Kernels, their launches and functions over tensors as one extension: on the emulator, and as PyTorch builds it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from crucible import emulator
from crucible.algebra.buffer import Buffer
from crucible.capture import trace
from crucible.emission.extension import inline, kernels
from crucible.emission.file import emit
from crucible.emission.host import Host
from crucible.emission.launch import signature
from crucible.graph import TensorType
from crucible.plan.planner import fuse
from crucible.print.written import Kernel, Lowered
from support import some, write

CUDA_HOME = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
ROW = TensorType((64,), (1,), "float32")
ADD = """\
__global__ void {name}(const float* __restrict__ from, float* __restrict__ to) {{
    extern __shared__ float own[];
    own[threadIdx.x] = from[threadIdx.x];
    to[threadIdx.x] = own[threadIdx.x] + 1;
}}"""
PLENTY = 100 * 1024
TOO_MUCH = 400 * 1024


def adding(name: str, reads: str, writes: str, shared_bytes: int = 256) -> Kernel:
    return Kernel(name, ADD.format(name=name), (), (reads,), (writes,), (1, 1, 1), 64, shared_bytes)


def host(name: str, *chain: Kernel) -> Host:
    """From x by a buffer to y."""
    lowered = Lowered(chain, (Buffer("half_way", "float32", 64),))
    return Host(f"run_{name}", {"x": ROW}, {"y": ROW}, {}, {}, (lowered,))


GOOD = host("good", adding("good_first", "x", "half_way"), adding("good_second", "half_way", "y", PLENTY))
REFUSED = host("refused", adding("refused_first", "x", "half_way", TOO_MUCH), adding("refused_last", "half_way", "y"))
IDLE = host("idle", replace(adding("idle_kernel", "x", "y"), grid=(0, 1, 1)))


def test_kernels_run_in_their_order_and_pass_on_what_they_write() -> None:
    emulator.forget()
    module = emulator.load_inline(**inline("extension_good", [GOOD]))
    x = torch.rand(64)
    (found,) = module.run_good(x)
    assert torch.equal(found, x + 2) and not emulator.faults()


def test_the_first_error_ends_a_launch_and_is_raised() -> None:
    emulator.forget()
    module = emulator.load_inline(**inline("extension_refused", [REFUSED]))
    with pytest.raises(RuntimeError, match="invalid argument"):
        module.run_refused(torch.rand(64))
    assert {fault.kernel for fault in emulator.faults() if fault.kind == "never-ran"} == {
        "refused_first",
        "refused_last",
    }


def test_where_there_is_nothing_to_launch_there_is_no_launch() -> None:
    module = emulator.load_inline(**inline("extension_idle", [IDLE]))
    assert module.run_idle(torch.rand(64))[0].shape == (64,)
    assert "launch_" not in kernels([IDLE])


def test_a_launch_says_what_it_only_reads() -> None:
    assert signature(GOOD) == (
        "cudaError_t launch_good(const float* x, float* y, float* half_way, int device, cudaStream_t stream)"
    )
    alone = host("alone", adding("alone_kernel", "x", "y"))
    assert signature(alone) == "cudaError_t launch_alone(const float* x, float* y, cudaStream_t stream)"


def test_tensors_of_other_shapes_are_refused() -> None:
    module = emulator.load_inline(**inline("extension_good", [GOOD]))
    with pytest.raises(RuntimeError, match=r"written for a tensor of shape \[64\]"):
        module.run_good(torch.rand(63))


BUILD = """
import sys
from pathlib import Path
from torch.utils import cpp_extension

file, home, folder, sources = sys.argv[1:]
cpp_extension.CUDA_HOME = home
real = cpp_extension.load_inline
stub = Path(folder, "stub/c10/cuda/impl/cuda_cmake_macros.h")  # PyTorch's CPU builds lack this generated header
stub.parent.mkdir(parents=True)
stub.write_text("#pragma once\\n")

def load_inline(**options):
    if sources == "kernels":
        options |= {"cpp_sources": "", "functions": None, "no_implicit_headers": True}
    return real(**options, build_directory=folder, extra_include_paths=[str(Path(folder, "stub"))])

cpp_extension.load_inline = load_inline
exec(Path(file).read_text(), {"__name__": "written"})
"""


def symbols(object_: Path, kind: str) -> set[str]:
    """Launch functions that an object defines (T), or calls (U)."""
    listed = subprocess.run(["nm", "-C", str(object_)], capture_output=True, text=True, check=True).stdout
    return set(re.findall(rf" {kind} (launch_.*)", listed))


@pytest.mark.slow
@pytest.mark.skipif(not (CUDA_HOME / "include/cuda_runtime.h").exists(), reason="there is no CUDA toolkit here")
@pytest.mark.parametrize("sources", some(["kernels", "both"], 2))
def test_pytorch_builds_what_is_written(sources: str, tmp_path: Path) -> None:
    """Both sources compile by its own `load_inline`, and fit each other; a CPU build of PyTorch cannot link them. By
    day kernels alone, with the launches that the other source declares: g++ takes 20 s for all of PyTorch's headers."""
    module = nn.Sequential(nn.Sigmoid(), nn.LayerNorm(64))
    file = write(tmp_path / "written.py", emit(fuse(trace(module, [torch.rand(4, 64)])), "written"))
    environment = {**os.environ, "TORCH_CUDA_ARCH_LIST": "9.0"}
    command = [sys.executable, "-c", BUILD, str(file), str(CUDA_HOME), str(tmp_path), sources]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    cpp, cuda = tmp_path / "main.o", tmp_path / "cuda.cuda.o"
    assert cpp.exists() and cuda.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    launched = {re.sub(r"\(.*", "", each) for each in symbols(cuda, "T")}
    assert len(launched) == 2 and launched == set(re.findall(r"C10_CUDA_CHECK\((launch_\w+)", file.read_text()))
    assert sources == "kernels" or symbols(cpp, "U") == symbols(cuda, "T")
