"""What `load_inline` is told: kernels and their launches for nvcc, which sees nothing of PyTorch's, and functions over
tensors for g++, both at once. With PyTorch's headers nvcc takes 40 s more."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from crucible.emission.host import Host
from crucible.emission.launch import ALLOW, launch, signature
from crucible.print.written import Kernel

HOST_FLAGS = ["-O1"]
"""Of g++, which PyTorch tells nothing of speed. The host's time of a forward and backward through autograd, kernels
left out: 128 us without, 37 with -O1 or -O2. With -O1 g++ takes 2 s more, with -O2 another 3 to 6."""
_HEADERS = (
    "c10/cuda/CUDAException.h",
    "c10/cuda/CUDAGuard.h",
    "c10/cuda/CUDAStream.h",
    "torch/csrc/Exceptions.h",
    "torch/csrc/utils/pybind.h",
    "torch/types.h",
)
_HALVES = {"cuda_bf16.h": re.compile(r"bfloat16"), "cuda_fp16.h": re.compile(r"__\w*half|\bhalf2?\b")}
"""Headers, and by what words they are missed."""
_LAID = """\
// The tensor as kernels read it: copied where it lies in memory in another way, or begins within 16 bytes.
static torch::Tensor laid(const torch::Tensor& given, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::ScalarType type) {
  TORCH_CHECK(given.sizes() == sizes && given.scalar_type() == type, "written for a tensor of shape ", sizes,
              " and ", type, ", given one of shape ", given.sizes(), " and ", given.scalar_type());
  bool fits = reinterpret_cast<uintptr_t>(given.data_ptr()) % 16 == 0;
  for (int64_t dim = 0; dim < given.dim(); ++dim) fits &= sizes[dim] < 2 || given.stride(dim) == strides[dim];
  return fits ? given : torch::empty_strided(sizes, strides, given.options()).copy_(given);
}
"""


def inline(prefix: str, hosts: Sequence[Host]) -> dict[str, Any]:
    """The arguments of `load_inline` for these functions alone; another text is another extension."""
    sources = {"cpp_sources": tensors(hosts), "cuda_sources": kernels(hosts)}
    return {
        "name": f"{prefix}_{digest(*sources.values())}",
        **sources,
        "functions": [host.name for host in hosts],
        "extra_cflags": HOST_FLAGS,
        "extra_cuda_cflags": flags(hosts),
        "no_implicit_headers": True,
    }


def digest(*sources: str) -> str:
    """What tells texts apart."""
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:12]


def flags(hosts: Sequence[Host]) -> list[str]:
    """What nvcc is told: the one architecture, where a kernel is for that alone."""
    found = {kernel.architecture.removeprefix("sm_") for host in hosts for kernel in host.kernels}
    return ["-O3", *(f"-gencode=arch=compute_{each},code=sm_{each}" for each in sorted(found - {""}))]


def kernels(hosts: Sequence[Host]) -> str:
    """The CUDA source: the kernels, the functions that launch them."""
    launches = [ALLOW] if any(host.asks for host in hosts) else []
    launches += [launch(host) for host in hosts if host.launched]
    return device([kernel for host in hosts for kernel in host.kernels], launches)


def device(every: Sequence[Kernel], functions: Sequence[str]) -> str:
    """What nvcc is given: each device function once, each kernel, functions that launch them."""
    preamble = dict.fromkeys(text for kernel in every for text in kernel.preamble)
    own = [text for text in preamble if text.startswith("#include")]
    blocks = [text for text in preamble if not text.startswith("#include")]
    blocks += [kernel.text for kernel in every]
    return _source([*blocks, *functions], ["cuda_runtime.h"], [*own, "#include <cstdint>"])


def tensors(hosts: Sequence[Host], headers: Sequence[str] = ()) -> str:
    """The C++ source: functions over tensors that have kernels launched."""
    declared = "\n".join(f"{signature(host)};" for host in hosts if host.launched)
    return _source([declared, _LAID, *(host.text for host in hosts)], [*_HEADERS, *headers])


def _source(blocks: Sequence[str], headers: Sequence[str], lines: Sequence[str] = ()) -> str:
    """Blocks under what they include."""
    text = "\n".join(block.rstrip("\n") + "\n" for block in blocks if block)
    halves = [header for header, words in _HALVES.items() if words.search(text)]
    includes = {*lines, *(f"#include <{header}>" for header in (*headers, *halves))}
    return "\n".join([*sorted(includes), "", text])
