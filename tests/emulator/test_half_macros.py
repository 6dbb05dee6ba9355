"""Half types as load_inline has them: without NVIDIA's operators and conversions, unless macros are undefined.
What compiles here compiles with nvcc, and what does not does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import pytest
from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

from crucible import emulator, hardware
from crucible.emulator import nvcc
from crucible.emulator.toolchain import BuildError
from support import some

BACK = [f"-U{flag[2:]}" for flag in COMMON_NVCC_FLAGS if flag.startswith("-D__CUDA_NO_")]

TAKEN_AWAY = {
    "a half of a float": "__half v(1.0f); h[0] = v;",
    "a half of an integer": "h[0] = __half(1);",
    "a float assigned to a half": "h[0] = f[0];",
    "a float of a half": "f[0] = h[0];",
    "a float cast from a half": "f[0] = static_cast<float>(h[0]);",
    "halves added": "h[0] = h[1] + h[2];",
    "halves compared": "if (h[1] < h[2]) f[0] = 1.0f;",
    "a half negated": "h[0] = -h[1];",
    "a half added to": "h[0] += h[1];",
    "pairs of halves multiplied": "p[0] = p[1] * p[2];",
    "a bfloat16 of a float": "b[0] = __nv_bfloat16(1.0f);",
    "a float of a bfloat16": "f[0] = b[0];",
}
"""Kernel bodies that need what PyTorch's flags take away."""

LEFT = {
    "functions convert": "h[0] = __float2half(f[0]); f[1] = __half2float(h[1]); b[0] = __float2bfloat16(f[2]);",
    "functions add": "h[0] = __hadd(h[1], h[2]); if (__hlt(h[1], h[2])) p[0] = __hmul2(p[1], p[2]);",
    "bfloat16 keeps its operators": "b[0] = b[1] + b[2]; b[0] *= b[1]; if (b[1] < b[2]) b[0] = -b[1]; q[0] += q[1];",
    "raw halves": "__half_raw r; r.x = 0x3c00; h[0] = r; r = h[1]; h[2] = __half(r);",
    "PyTorch's own": "c10::Half x(1.0f), y = x + x; f[0] = float(y); h[0] = x; y = h[1]; f[1] = y * 2.0f;",
}
"""Kernel bodies that do not."""


def source(bodies: list[str]) -> str:
    """A kernel a line, from the third on."""
    given = "__half* h, __half2* p, __nv_bfloat16* b, __nv_bfloat162* q, float* f"
    kernels = "\n".join(f"__global__ void k{i}({given}) {{ {body} }}" for i, body in enumerate(bodies))
    return f"#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n{kernels}\nvoid run(torch::Tensor x) {{}}\n"


def refused(bodies: list[str], flags: list[str]) -> set[int]:
    """The bodies in which the emulator's compiler finds an error."""
    try:
        emulator.load_inline("halves", "void run(torch::Tensor x);", source(bodies), ["run"], extra_cuda_cflags=flags)
    except RuntimeError as error:
        return {int(line) - 3 for line in re.findall(r"cuda\.cu:(\d+):\d+: error", str(error))}
    return set()


def refused_by_nvcc(bodies: list[str], flags: list[str]) -> set[int]:
    """The same of nvcc, which is given kernels alone."""
    compiler = nvcc.find("sm_90", COMMON_NVCC_FLAGS)
    assert compiler is not None
    text = "#include <c10/util/Half.h>\n" + source(bodies).partition("void run(torch")[0]
    try:
        compiler.unit(text, flags)
    except BuildError as error:
        return {int(line) - 4 for line in re.findall(r"cuda\.cu\((\d+)\): error", str(error))}
    return set()


Compiler: TypeAlias = Callable[[list[str], list[str]], set[int]]
COMPILERS = [
    refused,
    pytest.param(refused_by_nvcc, marks=pytest.mark.skipif(not hardware.nvcc(), reason="there is no nvcc here")),
]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_what_load_inline_takes_away_is_refused(compiler: Compiler) -> None:
    bodies = [*TAKEN_AWAY.values(), *LEFT.values()]
    assert compiler(bodies, []) == set(range(len(TAKEN_AWAY)))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_it_is_there_again_without_the_macros(compiler: Compiler) -> None:
    again = [
        body for name, body in LEFT.items() if name != "PyTorch's own"
    ]  # NVIDIA's conversions compete with its own
    assert compiler([*TAKEN_AWAY.values(), *again], BACK) == set()


@pytest.mark.parametrize("compiler", some(COMPILERS[::-1], 2))
def test_each_macro_is_looked_at_alone(compiler: Compiler) -> None:
    bodies = list(TAKEN_AWAY.values())
    still = [i for i, name in enumerate(TAKEN_AWAY) if "bfloat16" in name or re.search("added|compared|negated", name)]
    given_back = ["-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_HALF2_OPERATORS__"]
    assert compiler(bodies, given_back) == set(still)
