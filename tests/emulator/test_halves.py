"""A CUDA source as two: what each half has, and which sources are not taken apart."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path

import pytest

from crucible.emulator.halves import halves, plain_name, unmet
from crucible.judge.worker.halved import BINDING, bound, for_the_host
from support import NIGHTLY

SOURCE = """\
#include <torch/types.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAStream.h>
#define CHECKED(x) TORCH_CHECK(x.is_cuda(), #x)
constexpr int kThreads = 128;
struct Sizes { int rows, columns; };

__device__ float square(float v) {
  return v * v;
}

__host__ __device__ inline int cells(Sizes sizes) { return sizes.rows * sizes.columns; }

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) scale(const T* x, T* y, Sizes sizes) {
  int i = blockIdx.x * N + threadIdx.x;
  if (i < cells(sizes)) y[i] = square(x[i]);
}

__global__ void add(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] += 1; }

static int64_t blocks(int64_t n) { return (n + kThreads - 1) / kThreads; }

torch::Tensor run(torch::Tensor x) {
  CHECKED(x);
  auto y = torch::empty_like(x);
  Sizes sizes{int(x.size(0)), int(x.size(1))};
  scale<float, kThreads><<<blocks(x.numel()), dim3(kThreads), 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), sizes);
  if (x.numel() > 1) add<<<1, kThreads>>>(y.data_ptr<float>(), (int)y.numel());
  return y;
}
"""


def lines_of(half: str) -> list[str]:
    """From the source's own first line on."""
    return half.split('#line 1 "cuda.cu"\n')[1].split("\n")


def test_each_line_stays_where_it_was() -> None:
    two = halves(SOURCE)
    assert two
    for half in (lines_of(two.host), lines_of(two.device)):
        for number, line in enumerate(SOURCE.splitlines()):
            if "constexpr" in line or "Sizes {" in line or "cells(Sizes" in line:
                assert half[number] == line


def test_the_hosts_half_launches_as_nvcc_would() -> None:
    two = halves(SOURCE)
    assert two
    host = lines_of(two.host)
    assert host[28].strip() == (
        "((__cudaPushCallConfiguration(blocks(x.numel()), dim3(kThreads), 0, c10::cuda::getCurrentCUDAStream())) ? "
        "(void)0 : scale<float, kThreads>("
    )
    assert host[29].strip() == "x.data_ptr<float>(), y.data_ptr<float>(), sizes));"
    assert host[30].strip() == (
        "if (x.numel() > 1) ((__cudaPushCallConfiguration(1, kThreads)) ? (void)0 : "
        "add(y.data_ptr<float>(), (int)y.numel()));"
    )
    assert "square" not in two.host
    assert re.search(r"scale\(const T\* x, T\* y, Sizes sizes\) ;", two.host)
    assert "threadIdx" not in two.host


def test_the_devices_half_knows_nothing_of_pytorch() -> None:
    two = halves(SOURCE)
    assert two
    assert "torch/" not in two.device and "c10" not in two.device and "blocks(int64_t" not in two.device
    assert two.device.endswith("template __global__ decltype(scale<float, kThreads>) scale<float, kThreads>;\n")
    assert (two.kernels, two.templates) == ({"scale", "add"}, True)


def test_a_dispatched_type_is_float_or_double() -> None:
    text = SOURCE.replace("scale<float, kThreads>", "scale<scalar_t, kThreads>")
    two = halves(text)
    assert two
    assert re.findall(r"decltype\(scale<(\w+),", two.device) == ["float", "double"]


def test_all_of_pytorch_is_its_types() -> None:
    text = SOURCE.replace("#include <torch/types.h>", "#include <torch/types.h>\n#include <torch/extension.h>")
    two = halves(text)
    assert two and two.host.count("#include <torch/types.h>") == 3 and "extension" not in two.host


@pytest.mark.parametrize(
    "old, new, why",
    [
        ("constexpr int kThreads = 128;", "#ifdef X\nconstexpr int kThreads = 128;\n#endif", "told what compiles"),
        ("kThreads = 128", "kThreads = __CUDA_ARCH_LIST__ / 900", "the same without a line of the preprocessor's"),
        ("#include <c10/cuda/CUDAStream.h>", '#include "mine.h"', "nobody knows what is in it"),
        ("#include <c10/cuda/CUDAStream.h>", "#include <ATen/cuda/Atomic.cuh>", "atomicAdd of its own for everybody"),
        ("#include <c10/cuda/CUDAStream.h>", "#include <thrust/sort.h>", "it launches by another backend there"),
        ("#include <c10/cuda/CUDAStream.h>", "#include HEADER", "a macro's"),
        ("auto y =", "auto f = [=] __device__ (float v) { return v; }; auto y =", "nvcc alone can make it"),
        ("scale<float, kThreads><<<", "scale<<<", "which instance is not to be seen"),
        ("scale<float, kThreads><<<", "scale<at::Half, kThreads><<<", "a type of PyTorch's"),
        ("square(x[i])", "c10::cuda::compat::abs(x[i])", "a kernel names PyTorch"),
        ("square(x[i])", "blocks(x[i])", "nvcc refuses a call of a host function"),
        ("Sizes sizes{", "auto f = square(2.0f); Sizes sizes{", "nvcc refuses a call of a device function"),
        ("static int64_t blocks", "static int loaded = rand();\nstatic int64_t blocks", "it would be done twice"),
        ("static int64_t blocks", "const int drawn = rand();\nstatic int64_t blocks", "so would this"),
        ("__global__ void add(float* y, int n) {", "__global__ void add(float*, int);\n__global__ void add(float* y, int n) {", "two of a name"),  # noqa: E501
        ("add<<<1", "other<<<1", "a kernel that is nowhere"),
    ],
)  # fmt: skip
def test_what_is_not_taken_apart(old: str, new: str, why: str) -> None:
    assert halves(SOURCE)
    assert old in SOURCE
    assert halves(SOURCE.replace(old, new, 1)) is None, why


@pytest.mark.parametrize(
    "header", ["cooperative_groups.h", "cooperative_groups/reduce.h", "cub/block/block_reduce.cuh"]
)
def test_headers_for_kernels_are_the_devices(header: str) -> None:
    two = halves(SOURCE.replace("#include <cuda.h>", f"#include <cuda.h> // {header}\n#include <{header}>  // groups"))
    assert two and f"<{header}>" in two.device and f"<{header}>" not in two.host


def test_a_short_name_for_groups_is_the_devices() -> None:
    groups = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
    two = halves(SOURCE.replace("constexpr int kThreads", f"{groups}constexpr int kThreads", 1))
    assert two and "namespace cg" in two.device and "cooperative_groups" not in two.host


def test_kernels_alone_are_nvccs() -> None:
    assert halves("#include <cuda_runtime.h>\n__global__ void k() {}\nvoid go() { k<<<1, 1>>>(); }") is None


def test_torn_sources_raise_nothing_but_lookup_errors() -> None:
    draw = random.Random(0)
    for _ in range(300 if NIGHTLY else 100):
        start, end = sorted(draw.sample(range(len(SOURCE)), 2))
        for text in (SOURCE[:end], SOURCE[:start] + SOURCE[end:], SOURCE[:start] + draw.choice("(){}<>;\"'") + SOURCE):
            with contextlib.suppress(LookupError):
                halves(text)


def test_instances_that_nobody_compiled_are_named() -> None:
    two = halves(SOURCE)
    assert two
    names = {"_Z5scaleIfLi128EEvPKT_PS0_5Sizes": "void scale<float, 128>(float const*, float*, Sizes)",
             "_Z3addPfi": "add(float*, int)", "puts": "puts"}  # fmt: skip
    assert unmet(two, names, ["_Z3addPfi"], names) == ["_Z5scaleIfLi128EEvPKT_PS0_5Sizes"]
    assert unmet(two, names, names, names) == []
    assert plain_name("void (anonymous namespace)::scale<float>(float*)") == "scale"


@pytest.mark.parametrize(
    "flags, host",
    [
        ("-O3 --use_fast_math -lineinfo", "-O3"),
        ("-gencode arch=compute_90,code=sm_90 -gencode=arch=compute_90a,code=sm_90a", ""),
        ("-DX=1 -UY -I/usr/include -isystem /usr -std=c++17", "-DX=1 -UY -I/usr/include -isystem /usr -std=c++17"),
        ("--compiler-options '-fPIC' -Xcompiler -O2,-Wall --expt-relaxed-constexpr -Xptxas -v", "-fPIC -O2 -Wall"),
    ],
)
def test_the_host_gets_its_share_of_the_flags(flags: str, host: str) -> None:
    import shlex

    assert for_the_host(shlex.split(flags)) == host.split()


@pytest.mark.parametrize(
    "flag",
    ["-rdc=true", "-Xcompiler -fopenmp", "-Xcompiler -ffast-math", "-include x.h", "-ccbin nvc++", "-G", "-z", "x.cu"],
)
def test_flags_that_are_not_known_leave_it_whole(flag: str) -> None:
    with pytest.raises(LookupError, match=re.escape(flag.split()[0])):
        for_the_host(["-O3", *flag.split()])


MAIN = """\
#include <torch/extension.h>
{declared}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
m.def("run", torch::wrap_pybind_function(run), "run");
}}"""


@pytest.mark.parametrize(
    "declared, lean",
    [
        ("torch::Tensor run(torch::Tensor x, double eps = 1e-5);", True),
        ("std::vector<at::Tensor> run(const at::Tensor& x, c10::optional<torch::Tensor> b, int64_t n);", True),
        ("torch::Tensor run(torch::Tensor x) { return x; }", False),
        ("void run(torch::nn::ModuleHolder<int> x);", False),
        ("using namespace torch; Tensor run(Tensor x);", False),
        ("void run(torch::Device d);", False),
        ('#include "mine.h"', False),
    ],
)
def test_a_binding_of_tensors_and_numbers_needs_three_headers(
    declared: str, lean: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CPATH", raising=False)
    text = MAIN.format(declared=declared)
    three = "".join(f"#include <{header}>\n" for header in BINDING)
    assert bound(text) == (text.replace("#include <torch/extension.h>\n", three) if lean else text)
    (tmp_path / "crucible_binding.h.gch").mkdir()
    monkeypatch.setenv("CPATH", f"/nowhere:{tmp_path}")
    assert ("crucible_binding.h" in bound(text)) == lean
