"""Kernels of cases as extensions: their CUDA is as in written modules, for nvcc, which sees nothing of PyTorch's (it
takes 40 s for these headers alone), and a function over tensors is for g++."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from crucible import emulator
from crucible.emission.extension import device, digest, flags
from crucible.emission.host import Host
from crucible.print.written import Kernel, Lowered
from crucible.target.cuda import CUDA_TYPES

Run = Callable[[int, list[torch.Tensor]], None]
"""Of a kernel's number, and what it reads and writes."""
LAUNCH = """\
cudaError_t launch(int64_t number, void* const* t) {{
    switch (number) {{
{cases}
    }}
    return cudaGetLastError();
}}
"""
DECLARED = "void run(int64_t number, const std::vector<torch::Tensor>& tensors);"
TENSORS = """\
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include <cuda_runtime_api.h>
#include <vector>

cudaError_t launch(int64_t number, void* const* t);

static const char* const names[] = {{{names}}};

void run(int64_t number, const std::vector<torch::Tensor>& tensors) {{
    std::vector<void*> pointers;
    for (const torch::Tensor& each : tensors) pointers.push_back(each.data_ptr());
    const cudaError_t error = launch(number, pointers.data());
    TORCH_CHECK(error == cudaSuccess, names[number], ": ", cudaGetErrorString(error));
}}
"""


@dataclass(frozen=True)
class Numbered:
    """A kernel, its number among all, and the dtypes of what it reads and writes."""

    number: int
    kernel: Kernel
    types: Mapping[str, str]

    def launch(self, place: int) -> str:
        """Its part of the function that launches the kernel of a place among an extension's."""
        kernel = self.kernel
        if 0 in kernel.grid:
            return f"        case {place}: break;"
        names = [(name, "const ") for name in kernel.reads] + [(name, "") for name in kernel.writes]
        given = ", ".join(f"({c}{CUDA_TYPES[self.types[name]]}*)t[{i}]" for i, (name, c) in enumerate(names))
        allow = f"{kernel.name}, cudaFuncAttributeMaxDynamicSharedMemorySize, {kernel.shared_bytes}"
        return (
            f"        case {place}:\n"
            f"            if (const cudaError_t error = cudaFuncSetAttribute({allow})) return error;\n"
            f"            {kernel.name}<<<dim3{kernel.grid}, {kernel.threads}, {kernel.shared_bytes}>>>({given});\n"
            "            break;"
        )


def emulated(name: str, cpp_sources: str, cuda_sources: str, functions: list[str], **rest: Any) -> Any:
    """By the emulator, as one source: of two, g++ reads its headers twice (2 s)."""
    return emulator.load_inline(name, DECLARED, cuda_sources + cpp_sources, functions, **rest)


def loaded(prefix: str, lowered: Sequence[Lowered], types: Sequence[Mapping[str, str]],
           load: Callable[..., Any] = emulated, builds: int = 1) -> Run:  # fmt: skip
    """What runs the kernel of a number, counted over all that was lowered; with the dtypes of each one's tensors. They
    are dealt among `builds` extensions, built side by side, which `load` loads as `load_inline` does."""
    numbers = count()
    cases = [
        [Numbered(next(numbers), kernel, known) for kernel in each.kernels]
        for each, known in zip(lowered, types, strict=True)
    ]
    groups = dealt(cases, builds)
    with ThreadPoolExecutor(builds) as pool:
        modules = list(pool.map(lambda group: load(**inline(prefix, group)), groups))
    places = {
        each.number: (module, place)
        for module, group in zip(modules, groups, strict=True)
        for place, each in enumerate(group)
    }

    def run(number: int, tensors: list[torch.Tensor]) -> None:
        module, place = places[number]
        module.run(place, tensors)

    return run


def dealt(cases: Sequence[Sequence[Numbered]], groups: int) -> list[list[Numbered]]:
    """The longest first, each to where the least text is so far; in every group in the order of their numbers."""
    found: list[list[Numbered]] = [[] for _ in range(groups)]
    for each in sorted(cases, key=_length, reverse=True):
        min(found, key=_length).extend(each)
    return [sorted(group, key=lambda each: each.number) for group in found if group]


def _length(kernels: Sequence[Numbered]) -> int:
    return sum(len(each.kernel.text) for each in kernels)


def inline(prefix: str, kernels: Sequence[Numbered]) -> dict[str, Any]:
    """The arguments of `load_inline`; another text is another extension."""
    launch = LAUNCH.format(cases="\n".join(each.launch(place) for place, each in enumerate(kernels)))
    names = ", ".join(f'"{each.kernel.name}"' for each in kernels)
    every = [each.kernel for each in kernels]
    sources = {"cpp_sources": TENSORS.format(names=names), "cuda_sources": device(every, [launch])}
    return {
        "name": f"{prefix}_{digest(*sources.values())}",
        **sources,
        "functions": ["run"],
        "extra_cuda_cflags": flags([Host("run", {}, {}, {}, {}, (Lowered(tuple(every)),))]),
        "no_implicit_headers": True,
    }
