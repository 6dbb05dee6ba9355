"""The host's time of written networks, kernels left out, beside eager PyTorch's over the same small tensors on a CPU.

    python benchmarks/host_time.py [--only 15,19] [--mode train|eval]

What is written is built by g++ alone: its launches do nothing. What PyTorch computes, it computes over networks at
their small scale, for both sides alike; so the difference is Python, bindings, checks and autograd.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import tempfile
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import kernelbench
import torch
from torch.utils.cpp_extension import load_inline

import networks
from crucible.emission.extension import HOST_FLAGS

CALLS = 60
ROUNDS = 7
STUBS = {
    "c10/cuda/CUDAException.h": "#pragma once\n#define C10_CUDA_CHECK(call) (void)(call)\n",
    "c10/cuda/CUDAGuard.h": "#pragma once\n#include <c10/core/Device.h>\n"
    "namespace c10::cuda { struct CUDAGuard { explicit CUDAGuard(c10::Device) {} }; }\n",
    "c10/cuda/CUDAStream.h": "#pragma once\nusing cudaError_t = int;\nusing cudaStream_t = void*;\n"
    "namespace c10::cuda { inline cudaStream_t getCurrentCUDAStream() { return nullptr; } }\n",
}
"""Headers in the stead of PyTorch's for a GPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="15,19", help="numbers of networks")
    parser.add_argument("--mode", choices=("train", "eval"), default="train")
    args = parser.parse_args(namespace=argparse.Namespace(column="tf32", scale="small"))
    torch.set_num_threads(1)
    for word in args.only.split(","):
        (file,) = (file for file in networks.NETWORKS.glob("*.py") if kernelbench.number(file) == int(word))
        print(f"{file.stem}: {told(file, args)}", flush=True)


def told(file: Path, args: argparse.Namespace) -> str:
    """Both sides' microseconds of processor time a call, forward and with gradients."""
    task, reference, inputs = kernelbench.loaded(file, args)
    text = kernelbench.written_text(task, reference.model, inputs, kernelbench.COLUMNS["tf32"])
    names = written(text)
    new = names["ModelNew"](*reference.init_inputs).train(args.mode == "train")
    new.load_state_dict(reference.model.state_dict())
    sides = {"eager": reference.model, "written": new}
    found = {}
    for what, step in (("forward", forward), ("both", both)):
        spent = {name: microseconds(partial(step, module, inputs)) for name, module in sides.items()}
        found[what] = ", ".join(f"{name} {each:.0f}" for name, each in spent.items())
    return "; ".join(f"{what} us: {words}" for what, words in found.items())


def written(text: str) -> dict[str, Any]:
    """The file's names, its kernels left out."""
    names = types.ModuleType(f"written_{hashlib.sha256(text.encode()).hexdigest()[:8]}")
    sys.modules[names.__name__] = names
    lines = [line for line in text.split("\n") if not line.endswith(" import load_inline")]
    names.__dict__["load_inline"] = without_kernels
    exec(compile("\n".join(lines), "written", "exec"), names.__dict__)
    return names.__dict__


def without_kernels(name: str, cpp_sources: str, functions: list[str], **_: Any) -> Any:
    """The functions over tensors alone, of a CPU's."""
    stubs = Path(tempfile.mkdtemp())
    for header, stub in STUBS.items():
        (stubs / header).parent.mkdir(parents=True, exist_ok=True)
        (stubs / header).write_text(stub)
    launches = re.sub(r"^(cudaError_t launch_[^;]*);", r"\1 { return 0; }", cpp_sources, flags=re.MULTILINE)
    own = re.sub(r"#include <cuda[^>]*>\n", "", launches).replace("DispatchKey::CUDA;", "DispatchKey::CPU;")
    return load_inline(
        name, own, functions=functions, extra_cflags=HOST_FLAGS, extra_include_paths=[str(stubs)],
        no_implicit_headers=True,
    )  # fmt: skip


def forward(module: torch.nn.Module, inputs: list[Any]) -> None:
    with torch.no_grad():
        module(*inputs)


def both(module: torch.nn.Module, inputs: list[Any]) -> None:
    outputs = kernelbench.tensors(module(*inputs))
    wanted = [each for each in module.parameters() if each.requires_grad]
    torch.autograd.grad(outputs, wanted, [torch.ones_like(each) for each in outputs], allow_unused=True)


def microseconds(step: Callable[[], None]) -> float:
    """Of a call, in the least of several rounds."""
    least = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(CALLS):
            step()
        least = min(least, (time.process_time() - start) / CALLS)
    return least * 1e6


if __name__ == "__main__":
    main()
