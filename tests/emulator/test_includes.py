"""A source has what its own includes give, as with nvcc and PyTorch's headers, and no more."""

from __future__ import annotations

import re

import pytest
import torch

from crucible import emulator

# What stands in a source; the header that gives it; the name that is unknown without.
GIVEN = [
    ("int drawn() { std::mt19937 chance(1); return int(chance()); }", "random", "mt19937"),
    ("using Wide = at::acc_type<float, true>;", "ATen/AccumulateType.h", "acc_type"),
    ("void looked() { C10_CUDA_KERNEL_LAUNCH_CHECK(); }", "c10/cuda/CUDAException.h", "C10_CUDA_KERNEL_LAUNCH_CHECK"),
    ("void asked() { AT_CUDA_CHECK(cudaGetLastError()); }", "ATen/cuda/Exceptions.h", "AT_CUDA_CHECK"),
    ("void stream() { at::cuda::getCurrentCUDAStream(); }", "c10/cuda/CUDAStream.h", "getCurrentCUDAStream"),
    ("void guard() { const c10::cuda::CUDAGuard here(0); }", "c10/cuda/CUDAGuard.h", "CUDAGuard"),
    ("int sms() { return at::cuda::getCurrentDeviceProperties()->multiProcessorCount; }", "ATen/cuda/CUDAContext.h",
     "getCurrentDeviceProperties"),
    ("__global__ void group(int* n) { *n = cooperative_groups::this_thread_block().size(); }", "cooperative_groups.h",
     "cooperative_groups"),
    ("using Reduce = cub::BlockReduce<float, 64>;", "cub/cub.cuh", "cub"),
    ("using Tile = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;", "mma.h", "nvcuda"),
    ("__device__ float least() { return -CUDART_INF_F; }", "math_constants.h", "CUDART_INF_F"),
    ("__global__ void commits() { __pipeline_commit(); }", "cuda_pipeline.h", "__pipeline_commit"),
    ("using Counter = cuda::atomic_ref<int, cuda::thread_scope_device>;", "cuda/atomic", "cuda"),
    ("__global__ void adds(float* x) { gpuAtomicAdd(x, 1.0f); }", "ATen/cuda/Atomic.cuh", "gpuAtomicAdd"),
    ("__global__ void loop(int n) { CUDA_KERNEL_LOOP(i, n) {} }", "ATen/cuda/detail/KernelUtils.h", "CUDA_KERNEL_LOOP"),
]  # fmt: skip
ALWAYS = """
__global__ void always(float* x, __half* h, __nv_bfloat16* b) {
    *x = fmaxf(INFINITY, float(INT_MAX)) + __half2float(*h) + __bfloat162float(*b) + std::numeric_limits<float>::max();
    *x += FLT_MAX;  // where nvcc compiles: PyTorch's complex numbers are thrust's there, which bring <cfloat>
}
torch::Tensor run(torch::Tensor x) {
    std::vector<int64_t> sizes = x.sizes().vec();
    const std::string words = std::to_string(std::max<int64_t>(sizes[0], 1));
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "run", [&] { cudaDeviceSynchronize(); });
    return x;
}
"""
DECLARED = "torch::Tensor run(torch::Tensor x);"


def test_without_their_headers_names_are_unknown() -> None:
    source = "\n".join(text for text, *_ in GIVEN) + ALWAYS
    with pytest.raises(RuntimeError, match="Error building extension 'bare'") as raised:
        emulator.load_inline("bare", DECLARED, source, ["run"])
    errors = [line for line in str(raised.value).splitlines() if "error: " in line]
    assert [name for *_, name in GIVEN if not any(re.search(rf"‘[\w:]*\b{name}", line) for line in errors)] == []
    lines = {int(found[1]) for line in errors if (found := re.match(r"cuda\.cu:(\d+):", line))}
    assert lines == set(range(1, len(GIVEN) + 1)), errors


def test_with_their_headers_names_are_known() -> None:
    source = (
        "".join(f"#include <{header}>\n" for _, header, _ in GIVEN) + "\n".join(text for text, *_ in GIVEN) + ALWAYS
    )
    extension = emulator.load_inline("included", DECLARED, source, ["run"])
    assert extension.run(torch.ones(3)).shape == (3,)


def test_a_header_that_pytorch_no_longer_has_is_missing() -> None:
    with pytest.raises(RuntimeError, match=r"THC/THC\.h: No such file"):
        emulator.load_inline("thc", DECLARED, "#include <THC/THC.h>\n" + ALWAYS, ["run"])


def test_cpp_sources_know_no_launches() -> None:
    source = "__global__ void k() {}\nvoid run() { k<<<1, 1>>>(); }"
    with pytest.raises(RuntimeError, match=r"main\.cpp:2:1: error: expected primary-expression before ‘<’ token"):
        emulator.load_inline("launching", source, "", ["run"])


VALUES = """
int64_t size(torch::Tensor x) { return x.numel(); }
int64_t sizes(std::vector<torch::Tensor> x) { return int64_t(x.size()); }
int64_t perhaps(std::optional<torch::Tensor> x) { return x ? x->numel() : -1; }
int64_t truth(bool yes) { return yes; }
int64_t whole(int64_t n) { return n; }
"""


def test_what_pybind11_refuses_is_refused_and_what_it_takes_is_taken() -> None:
    functions = ["size", "sizes", "perhaps", "truth", "whole"]
    extension = emulator.load_inline("values", VALUES, functions=functions)
    for function, value in (("size", None), ("sizes", [None]), ("whole", 1.5), ("whole", None), ("size", 3)):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            getattr(extension, function)(value)
    assert (extension.size(torch.ones(2)), extension.sizes([torch.ones(1)]), extension.perhaps(None)) == (2, 1, -1)
    assert (extension.truth(1), extension.truth(None), extension.truth(True), extension.whole(True)) == (1, 0, 1, 1)


FIXED = """
#include <torch/extension.h>
torch::Tensor strided(
    torch::Tensor x, std::tuple<int, int> stride, const std::pair<int64_t, double>& scaled, std::array<int64_t, 2> sizes
) {
    const auto [rows, columns] = stride;
    return x.slice(0, 0, sizes[0], rows).slice(1, 0, sizes[1], columns) * scaled.first + scaled.second;
}
std::array<int64_t, 2> sizes(std::tuple<torch::Tensor, std::optional<torch::Tensor>> x) {
    return {std::get<0>(x).numel(), std::get<1>(x) ? 1 : 0};
}
"""


def test_tuples_pairs_and_arrays_come_from_sequences_of_their_length() -> None:
    extension = emulator.load_inline("fixed", FIXED, functions=["strided", "sizes"])
    x = torch.arange(24.0).view(4, 6)
    for stride, scaled, sizes in (((2, 3), (2, 0.5), (3, 5)), ([2, 3], [2, 0.5], [3, 5])):
        assert torch.equal(extension.strided(x, stride, scaled, sizes), x[:3:2, :5:3] * 2 + 0.5)
    assert extension.sizes((x, None)) == [24, 0]
    for wrong in ((2,), (2, 3, 4), 2, None, (2, "3")):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            extension.strided(x, wrong, (1, 0.0), (4, 6))
